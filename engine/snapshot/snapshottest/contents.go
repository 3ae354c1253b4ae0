//go:build linux

package snapshottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

func contents() []promise {
	return []promise{
		{name: "a script has the same result on a fork as on a plain directory", test: scripts, storage: true},
		{name: "a path longer than any system call accepts", test: deep, storage: true},
		{name: "holes stay holes", test: holes, storage: true},
		{name: "a mount in the tree is no part of a snapshot", test: mounts},
	}
}

// powers returns which file operations random test scripts may use, given the abilities of this machine and
// this backend.
func (x *workbench) powers() treetest.Powers {
	x.Helper()
	facts := x.b.Facts()
	return treetest.Powers{
		NoExchange: !x.exchanges(), NoCapabilities: !x.dropsCapabilities(),
		Root: os.Geteuid() == 0, NoDirRename: !facts.DirRename, KeepOldLinks: facts.PartsLinks,
		ShortRenames: facts.DirRename && facts.PartsLinks, // overlayfs stores a redirect in 256 bytes
	}
}

// exchanges reports whether two names of the real tree can be exchanged by one rename. If the filesystem of
// the tree cannot do it, no fork can.
func (x *workbench) exchanges() bool {
	x.Helper()
	a, b := filepath.Join(x.place.Tree.Path, "a"), filepath.Join(x.place.Tree.Path, "b")
	x.must(errors.Join(os.Mkdir(a, 0o700), os.Mkdir(b, 0o700)))
	err := vfs.RenameAt(unix.AT_FDCWD, a, unix.AT_FDCWD, b, vfs.RenameExchange)
	x.must(errors.Join(os.Remove(a), os.Remove(b)))
	if err != nil && err != unix.EINVAL {
		x.Fatal("exchanging two names:", err)
	}
	return err == nil
}

// dropsCapabilities reports whether a write to a file of the real tree removes its capabilities, as
// it does on the filesystem of the plain directory that scripts are compared with.
func (x *workbench) dropsCapabilities() bool {
	x.Helper()
	if os.Geteuid() != 0 {
		return true // an ordinary user sets no capabilities
	}
	f, err := os.Create(filepath.Join(x.place.Tree.Path, "a"))
	x.must(err)
	defer f.Close()
	const attr = "security.capability"
	x.must(vfs.SetXattr(unix.AT_FDCWD, f.Name(), attr, treetest.Capability(1), 0))
	_, err = f.WriteString("text")
	x.must(err)
	_, err = unix.Fgetxattr(int(f.Fd()), attr, nil)
	x.must(os.Remove(f.Name()))
	return err == unix.ENODATA
}

// play carries out a script, a list of random file operations such as create and rename, in the directory
// dir.
func (x *workbench) play(s treetest.Script, dir string) {
	x.Helper()
	root, err := os.Open(dir)
	x.must(err)
	defer root.Close()
	x.must(s.Play(root))
}

// playBoth executes the next n steps of the script that w writes on a fork and then, unless oracle is "", on
// the plain directory oracle. It returns the writer for the steps after these. If a step that moves a
// directory fails with EXDEV, the writer forgets the step: overlayfs stores a redirect in 256 bytes, and so
// cannot move directories with long paths.
func (x *workbench) playBoth(w *treetest.Writer, n int, fork *os.File, oracle string) *treetest.Writer {
	x.Helper()
	for refused := 0; n > 0; n-- {
		before := w.Clone(uint64(n))
		step := w.Script(1)
		err := step.Play(fork)
		moves := step[0].Op == treetest.Rename || step[0].Op == treetest.Exchange
		if errors.Is(err, unix.EXDEV) && moves && refused < 5 {
			refused++
			w = before
			continue
		}
		x.must(err)
		if oracle != "" {
			x.play(step, oracle)
		}
	}
	return w
}

// equals checks that a view, a snapshot or a fork of the backend, shows the same content and metadata as the
// directory plain. what describes the view in failures.
func (x *workbench) equals(v snapshot.View, plain, what string) {
	x.Helper()
	want, err := os.Open(plain)
	x.must(err)
	defer want.Close()
	got := x.reach(v)
	defer got.Close()
	list, err := treetest.Differences(want, got, treetest.Options{})
	x.must(err)
	for i, d := range list {
		if i == 5 {
			x.Errorf("%s: and %d differences more", what, len(list)-i)
			break
		}
		x.Errorf("%s: %s", what, d)
	}
}

// seeds returns how many scripts of random file operations a test of a backend runs, each with its own seed:
// fewer in short runs.
func (x *workbench) seeds() int {
	if x.subject.StorageOnly {
		return treetest.Budget(x, 1, 2)
	}
	return treetest.Budget(x, 2, 10)
}

// at returns a workbench with an empty tree for the script of this seed: this one for the first seed, and then
// new ones.
func (x *workbench) at(seed int) *workbench {
	x.Helper()
	if seed == 0 {
		return x
	}
	return newWorkbench(x.TB, x.subject, x.subject.Place)
}

// scripts is a test that every backend must pass: random file operations have the same result on a fork as on
// a plain directory. A failure is repeatable by the seed that it names.
func scripts(x *workbench) {
	for seed := range x.seeds() {
		if x.Failed() {
			return
		}
		x.at(seed).scripted(uint64(seed))
	}
}

func (x *workbench) scripted(seed uint64) {
	x.Helper()
	w := treetest.NewWriter(seed, x.powers())
	oracle, base := filepath.Join(treetest.Dir(x), "oracle"), filepath.Join(treetest.Dir(x), "base")
	x.must(os.Mkdir(oracle, 0o755))
	x.must(os.Mkdir(base, 0o755))
	before := w.Script(80)
	for _, dir := range []string{x.place.Tree.Path, oracle, base} {
		x.play(before, dir)
	}
	w.Freeze()
	what := func(s string) string { return fmt.Sprintf("seed %d, %s", seed, s) }
	x.capture("s1")
	x.fork("s1", "f1")
	x.equals(x.snap("s1"), oracle, what("the capture"))
	for i, use := range []snapshot.Use{snapshot.InUse, snapshot.Idle, snapshot.Idle} {
		root := x.reach(x.view("f1"))
		w = x.playBoth(w, 60, root, oracle)
		id := snapshot.ID(fmt.Sprintf("t%d", i))
		if use == snapshot.Idle {
			x.must(root.Close())
			x.seal("f1", id, use)
		} else {
			x.seal("f1", id, use)
			x.must(root.Close())
		}
		x.equals(x.snap(id), oracle, what("the sealed snapshot"))
		x.equals(x.view("f1"), oracle, what("the fork"))
		w.Freeze()
	}
	x.equals(x.fork("t2", "f2").View, oracle, what("a fork of the last snapshot"))
	x.equals(x.snap("s1"), base, what("the capture, afterwards"))
	x.clean()
}

func deep(x *workbench) {
	w := treetest.NewWriter(1, x.powers())
	long := w.Deep()
	oracle := treetest.Dir(x)
	x.play(long, x.place.Tree.Path)
	x.play(long, oracle)
	x.must(os.Chmod(oracle, 0o755))
	x.capture("s1")
	root := x.reach(x.fork("s1", "f1").View)
	x.playBoth(w, 20, root, oracle)
	x.must(root.Close())
	x.seal("f1", "s2", snapshot.Idle)
	x.equals(x.snap("s2"), oracle, "a tree of long paths")
	x.clean()
}

func holes(x *workbench) {
	const size, data = 8 << 20, 4 << 20
	path := filepath.Join(x.place.Tree.Path, "sparse")
	f, err := os.Create(path)
	x.must(err)
	x.must(f.Truncate(size))
	_, err = f.WriteAt([]byte("in the middle"), data)
	x.must(err)
	x.must(f.Close())
	x.capture("s1")
	x.fork("s1", "f1")
	x.seal("f1", "s2", snapshot.InUse)
	tree, err := os.Open(x.place.Tree.Path)
	x.must(err)
	defer tree.Close()
	for _, v := range []snapshot.View{x.snap("s1"), x.view("f1"), x.snap("s2")} {
		root := x.reach(v)
		treetest.Holes(x, tree, root, "sparse")
		x.must(root.Close())
	}
	x.clean()
}

func mounts(x *workbench) {
	x.write("dir/beneath", "ours")
	other := treetest.Dir(x)
	x.put(other, "foreign", "not ours")
	point := filepath.Join(x.place.Tree.Path, "dir")
	mnt, err := mount.CloneTree(other)
	if err != nil { // an ordinary user cannot mount
		x.capture("s1")
		x.has(x.fork("s1", "f1").View, "dir/beneath", "ours", "without a mount")
		x.clean()
		return
	}
	defer mnt.Close()
	x.must(mount.MoveMount(mnt, point))
	x.Cleanup(func() { _ = mount.Unmount(point) })
	_, err = x.b.Capture(x.Context(), x.place.Tree, "s1")
	if errors.Is(err, errs.ErrNotSupported) {
		return // refusing such a tree is correct too
	}
	x.must(err)
	v := x.fork("s1", "f1").View
	x.has(v, "dir/foreign", "", "a fork of a tree with a mount in it")
	x.in(v, func(dir string) {
		if info, err := os.Stat(dir + "/dir"); err != nil || !info.IsDir() {
			x.Errorf("the mount point is %v, %v", info, err)
		}
	})
	x.clean()
}
