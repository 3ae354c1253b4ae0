//go:build linux

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// made returns a new pool and a workspace with some files.
func made(t testing.TB) (dir string, p *pool.Pool, tree string) {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "btrfs")
	treetest.NeedProgram(t, "mkfs.btrfs")
	top := treetest.Dir(t)
	dir, tree = filepath.Join(top, "pools"), filepath.Join(top, "work")
	t.Cleanup(func() {
		_ = unix.Unmount(tree, unix.UMOUNT_NOFOLLOW) // EINVAL unless it is adopted
		if err := unix.Unmount(filepath.Join(dir, "p/mnt"), 0); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			t.Error("unmount:", err)
		}
	})
	p, err := pool.Create(t.Context(), dir, "p", 512<<20)
	if err != nil {
		t.Fatal(err)
	}
	must(t, os.Mkdir(tree, 0o755))
	for i := range 30 {
		write(t, fmt.Sprintf("%s/d%d/sub/f%d", tree, i%3, i), fmt.Sprint("content ", i))
	}
	must(t, os.Link(tree+"/d0/sub/f0", tree+"/linked"))
	must(t, os.Symlink("nowhere", tree+"/symlink"))
	must(t, unix.Mkfifo(tree+"/fifo", 0o640))
	must(t, os.Lchown(tree+"/d1/sub/f1", 1234, 5678))
	must(t, unix.Setxattr(tree+"/d2", "user.mine", []byte("x"), 0))
	must(t, os.Truncate(tree+"/d0/sub/f3", 10<<20))
	return dir, p, tree
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// same compares two trees in everything that an import preserves.
func same(t testing.TB, a, b, when string) {
	t.Helper()
	if diff := treetest.Lines(describe(t, a), describe(t, b)); len(diff) > 0 {
		t.Fatalf("%s: %q", when, diff)
	}
}

// describe returns a manifest of dir. It closes its descriptor, which would prevent an unmount.
func describe(t testing.TB, dir string) string {
	t.Helper()
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	var b strings.Builder
	must(t, treetest.WriteManifest(&b, root, treetest.Options{}))
	return b.String()
}

func copyOf(t testing.TB, p *pool.Pool) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.Dir, "mnt/trees/*/tree"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	return found[0]
}

func TestASecondImportCopiesOnlyChanges(t *testing.T) {
	_, p, tree := made(t)
	all, err := p.Import(t.Context(), tree, nil)
	must(t, err)
	same(t, tree, copyOf(t, p), "the first time")
	none, err := p.Import(t.Context(), tree, nil)
	must(t, err)
	if none.Copied+none.Deleted != 0 || all.Copied < 30 {
		t.Errorf("first %+v, unchanged %+v", all, none)
	}
	write(t, tree+"/d0/sub/f0", "through one of its names")
	must(t, os.Remove(tree+"/d1/sub/f4"))
	must(t, os.Rename(tree+"/d1", tree+"/tmp"))
	must(t, os.Rename(tree+"/d2", tree+"/d1")) // the same names with other content
	must(t, os.Rename(tree+"/tmp", tree+"/d2"))
	must(t, os.Remove(tree+"/symlink"))
	write(t, tree+"/symlink/now", "a directory")
	must(t, os.Chmod(tree+"/fifo", 0o600))
	_, err = p.Import(t.Context(), tree, nil)
	must(t, err)
	same(t, tree, copyOf(t, p), "after changes")
	write(t, tree+"/d0/sub/f6", "one")
	one, err := p.Import(t.Context(), tree, nil)
	must(t, err)
	if one.Copied != 1 {
		t.Errorf("one change copied %+v", one)
	}
}

func TestAKilledImportIsRepairedByTheNext(t *testing.T) {
	_, p, tree := made(t)
	for step := 1; ; step++ {
		write(t, tree+"/gone", "briefly")
		write(t, tree+"/d0/sub/f6", fmt.Sprint("round ", step))
		var n atomic.Int64 // several threads copy
		stop := errors.New("stopped")
		ctx := treetest.WithFaults(t.Context(), func(string) error {
			if n.Add(1) >= int64(step) {
				return stop
			}
			return nil
		})
		_, err := p.Import(ctx, tree, nil)
		must(t, os.Remove(tree+"/gone"))
		_, again := p.Import(t.Context(), tree, nil)
		must(t, again)
		same(t, tree, copyOf(t, p), fmt.Sprint("stopped at step ", step))
		if err == nil || t.Failed() {
			break
		}
	}
}

func TestAnImportedTreeHasAFrozenBase(t *testing.T) {
	dir, p, tree := made(t)
	place := snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: dir}
	if _, err := pool.Driver.Open(t.Context(), place); !errors.Is(err, errs.ErrNotSupported) {
		t.Fatalf("before the import: %v", err)
	}
	_, err := p.Import(t.Context(), tree, nil)
	must(t, err)
	b, err := pool.Driver.Open(t.Context(), place)
	must(t, err)
	write(t, tree+"/d0/sub/f6", "since the import")
	before := time.Now()
	cloner, ok := b.(snapshot.Cloner)
	if !ok {
		t.Fatal("the backend is no Cloner")
	}
	s, f, err := cloner.Clone(t.Context(), place.Tree, "s1", "f1")
	must(t, err)
	same(t, tree, s.View.Path, "the snapshot")
	same(t, tree, f.View.Path, "the fork")
	if s.Tree != place.Tree || s.Taken.After(time.Now()) || s.Taken.Before(before.Add(-time.Second)) {
		t.Errorf("%+v", s)
	}
	if err := pool.Remove(t.Context(), dir, "p"); !errors.Is(err, errs.ErrBusy) {
		t.Errorf("removing a pool with a fork: %v", err)
	}
	must(t, b.RemoveFork(t.Context(), "f1"))
	must(t, b.Remove(t.Context(), "s1"))
	must(t, pool.Remove(t.Context(), dir, "p"))
	if left, err := os.ReadDir(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("remains of the pool: %v, %v", left, err)
	}
}

func TestAPoolIsMountedAgainAfterAReboot(t *testing.T) {
	dir, p, tree := made(t)
	_, err := p.Adopt(t.Context(), tree, nil)
	must(t, err)
	write(t, tree+"/new", "on the pool")
	must(t, unix.Unmount(tree, 0)) // as a reboot does
	must(t, unix.Unmount(filepath.Join(p.Dir, "mnt"), 0))
	if note, err := os.ReadFile(tree + "/.snapfs-adopted"); err != nil || !strings.Contains(string(note), "snapfs pool status") {
		t.Errorf("the placeholder has %q, %v", note, err)
	}
	_, err = pool.Open(t.Context(), dir, "p")
	must(t, err)
	if text, err := os.ReadFile(tree + "/new"); err != nil || string(text) != "on the pool" {
		t.Errorf("%q, %v", text, err)
	}
}

// A mount namespace copied while the pool was mounted, such as that of a service or a sandbox,
// keeps its filesystem alive. A new Open must find that filesystem, and not mount a second one on
// the same blocks.
func TestAPoolMountedElsewhereIsOpenedAsTheSameFilesystem(t *testing.T) {
	dir, p, tree := made(t)
	_, err := p.Adopt(t.Context(), tree, nil)
	must(t, err)
	holder := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 60")
	held, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	defer func() { holder.Process.Kill(); holder.Wait() }()
	_, err = held.Read(make([]byte, 1))
	must(t, err)
	write(t, tree+"/new", "on the pool") // not yet on the disk
	must(t, unix.Unmount(tree, 0))
	must(t, unix.Unmount(filepath.Join(p.Dir, "mnt"), 0))
	_, err = pool.Open(t.Context(), dir, "p")
	must(t, err)
	if text, err := os.ReadFile(tree + "/new"); err != nil || string(text) != "on the pool" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestAdoptAndUnadoptLoseNothing(t *testing.T) {
	_, p, tree := made(t)
	_, err := p.Adopt(t.Context(), tree, nil)
	must(t, err)
	same(t, tree+".snapfs-original", tree, "adopted")
	s, err := p.Status()
	must(t, err)
	if len(s.Trees) != 1 || !s.Trees[0].Adopted || !strings.Contains(s.Trees[0].Fstab, tree) {
		t.Errorf("%+v", s)
	}
	write(t, tree+"/new", "on the pool")
	must(t, p.DropOriginal(t.Context(), tree))
	_, err = p.Unadopt(t.Context(), tree, nil)
	must(t, err)
	same(t, copyOf(t, p), tree, "returned")
	if fs, err := mount.FilesystemOf(tree); err != nil || fs.Type == "btrfs" {
		t.Errorf("the workspace is on %s, %v", fs.Type, err)
	}
	_, err = p.Import(t.Context(), tree, nil)
	must(t, err)
	same(t, tree, copyOf(t, p), "imported again")
}

const childEnv = "SNAPFS_POOL_CHILD"

// verbs are the operations of a child process.
var verbs = map[string]func(context.Context, *pool.Pool, string) error{
	"import": func(ctx context.Context, p *pool.Pool, tree string) error {
		_, err := p.Import(ctx, tree, nil)
		return err
	},
	"adopt": func(ctx context.Context, p *pool.Pool, tree string) error {
		_, err := p.Adopt(ctx, tree, nil)
		return err
	},
	"return": func(ctx context.Context, p *pool.Pool, tree string) error {
		_, err := p.Adopt(context.WithoutCancel(context.Background()), tree, nil)
		if err == nil {
			_, err = p.Unadopt(ctx, tree, nil)
		}
		return err
	},
}

// beChild executes an operation in a process of its own, which kills itself at a fault point.
func beChild(t *testing.T) {
	args := strings.Split(os.Getenv(childEnv), "\n")
	if len(args) != 4 {
		return
	}
	last, err := strconv.ParseInt(args[1], 10, 64)
	must(t, err)
	var n atomic.Int64
	ctx := treetest.WithFaults(t.Context(), func(string) error {
		if n.Add(1) == last {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return nil
	})
	p, err := pool.Open(t.Context(), args[2], "p")
	must(t, err)
	must(t, verbs[args[0]](ctx, p, args[3]))
	os.Exit(0)
}

// child runs an operation that is killed at a step, and reports whether it finished before.
func child(t *testing.T, verb string, step int, dir, tree string) (done bool) {
	t.Helper()
	top, _, _ := strings.Cut(t.Name(), "/")
	err := run.Run(t.Context(), run.Program{
		Name: "/proc/self/exe", Args: []string{"-test.run=^" + top + "$"},
		Env: append(os.Environ(), childEnv+"="+strings.Join([]string{verb, strconv.Itoa(step), dir, tree}, "\n")),
	})
	var e *run.Error
	if errors.As(err, &e) && e.Code == -1 {
		return false
	}
	must(t, err)
	return true
}

// The process is killed at some steps of each operation, including the first and the last. The next
// process must find the workspace complete and in place.
func TestAKilledPoolCommandLosesNothing(t *testing.T) {
	beChild(t)
	for verb := range verbs {
		t.Run(verb, func(t *testing.T) {
			dir, _, tree := made(t)
			want := describe(t, tree)
			for step := 1; ; step += 1 + step/12 {
				done := child(t, verb, step, dir, tree)
				p, err := pool.Open(t.Context(), dir, "p")
				must(t, err)
				if diff := treetest.Lines(want, describe(t, tree)); len(diff) > 0 {
					t.Fatalf("after %s was killed at step %d, the workspace differs: %q", verb, step, diff)
				}
				if _, err := p.Unadopt(t.Context(), tree, nil); err != nil && !errors.Is(err, errs.ErrNotFound) {
					t.Fatal(err)
				}
				must(t, os.RemoveAll(tree+".snapfs-original"))
				if done {
					return
				}
			}
		})
	}
}
