//go:build linux

package snapshottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func claims() []promise {
	return []promise{
		{name: "a directory of the base is renamed in one step exactly as claimed", test: dirRename},
		{name: "hard links stay linked or part exactly as claimed", test: partsLinks},
		{name: "a byte changed costs a block or a file as claimed", storage: true, small: true, test: unitCost},
		{name: "the cost of a fork is constant exactly as claimed", test: copiesWhole},
		{name: "a frozen snapshot has the real tree's inodes exactly as claimed", test: realInodes},
		{name: "the facts do not change", test: factsStay},
	}
}

func dirRename(x *workbench) {
	x.write("dir/sub/file", "base")
	x.capture("s1")
	v := x.fork("s1", "f1").View
	x.in(v, func(dir string) {
		err := unix.Rename(dir+"/dir", dir+"/moved")
		switch claimed := x.b.Facts().DirRename; {
		case claimed && err != nil:
			x.Errorf("renaming a directory of the base: %v", err)
		case !claimed && !errors.Is(err, unix.EXDEV):
			x.Errorf("renaming a directory of the base returns %v, the facts say EXDEV", err)
		}
	})
	if x.b.Facts().DirRename {
		x.has(v, "moved/sub/file", "base", "the fork")
		x.has(v, "dir/sub/file", "", "the fork")
		x.seal("f1", "s2", snapshot.Idle)
		x.has(x.snap("s2"), "moved/sub/file", "base", "the sealed snapshot")
	}
	x.clean()
}

func partsLinks(x *workbench) {
	x.write("one", "base")
	x.must(os.Link(x.place.Tree.Path+"/one", x.place.Tree.Path+"/two"))
	x.capture("s1")
	v := x.fork("s1", "f1").View
	x.in(v, func(dir string) { x.put(dir, "one", "changed") })
	want := map[bool]string{false: "changed", true: "base"}[x.b.Facts().PartsLinks]
	x.has(v, "one", "changed", "the name written to")
	x.has(v, "two", want, "the other name")
	x.clean()
}

// unitCost checks the backend's claim Facts.Unit: it changes a byte of a file and measures the disk space
// that the change takes. A backend that copies whole trees has taken the space at the fork already.
func unitCost(x *workbench) {
	size := 4 << 20
	if x.b.Facts().Unit == snapshot.ByFile {
		size = 1 << 20
	}
	x.write("large", noise(size))
	x.capture("s1")
	before := x.freeSpace()
	v := x.fork("s1", "f1").View
	x.in(v, func(dir string) {
		f, err := os.OpenFile(dir+"/large", os.O_WRONLY, 0)
		x.must(err)
		_, err = f.WriteAt([]byte{1}, int64(size/2))
		x.must(errors.Join(err, f.Sync(), f.Close()))
	})
	took := before - x.freeSpace()
	switch got := x.b.Facts().Unit; {
	case got == snapshot.ByFile && took < int64(size*3/4) && !x.sharesBlocks():
		x.Errorf("changing a byte took %v, the facts say the whole file of %v", snapshot.Bytes(took), snapshot.Bytes(size))
	case got == snapshot.ByBlock && took > int64(size/2):
		x.Errorf("changing a byte took %v, the facts say some blocks", snapshot.Bytes(took))
	case got != snapshot.ByFile && got != snapshot.ByBlock:
		x.Errorf("the unit is %q", got)
	}
	x.clean()
}

// sharesBlocks reports whether the filesystem of the tree can clone the test's file called large, so that a
// copy of it takes no disk space.
func (x *workbench) sharesBlocks() bool {
	x.Helper()
	src, err := os.Open(x.place.Tree.Path + "/large")
	x.must(err)
	defer src.Close()
	dst, err := os.Create(filepath.Dir(x.place.Tree.Path) + "/clone")
	x.must(err)
	defer dst.Close()
	return vfs.CloneFile(dst, src) == nil
}

// freeSpace returns the free bytes of the tree's filesystem after a sync. On btrfs it commits the
// transaction, as btrfs would otherwise free deleted extents only after half a minute.
func (x *workbench) freeSpace() int64 {
	x.Helper()
	dir, err := os.Open(filepath.Dir(x.place.Tree.Path))
	x.must(err)
	defer dir.Close()
	err = btrfs.Commit(int(dir.Fd()))
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
		err = unix.Syncfs(int(dir.Fd()))
	}
	x.must(err)
	var st unix.Statfs_t
	x.must(unix.Fstatfs(int(dir.Fd()), &st))
	return int64(st.Bfree) * st.Bsize
}

// copiesWhole checks the backend's claim Facts.CopiesWhole: whether a capture takes longer for a larger tree.
// Instead of measuring time it counts fault points, the places before a change on disk, because their number
// is the same in every run.
func copiesWhole(x *workbench) {
	x.write("file", "")
	count := func(id string) int {
		x.stamp(id)
		ctx, s := WithFault(x.Context(), 0, nil)
		_, err := x.b.Capture(ctx, x.place.Tree, snapshot.ID(id))
		x.must(err)
		_, err = x.b.Fork(ctx, snapshot.ID(id), snapshot.ForkID(id))
		x.must(err)
		return len(s.Names())
	}
	few := count("few")
	for i := range 50 {
		x.write(fmt.Sprintf("more/%d/file", i), "more")
	}
	many := count("many")
	switch claimed := x.b.Facts().CopiesWhole; {
	case claimed && many <= few:
		x.Errorf("it claims to copy whole trees, and takes %d steps for a large one, %d for a small one", many, few)
	case !claimed && many > few:
		x.Errorf("a large tree takes %d steps, a small one %d", many, few)
	}
	x.clean()
}

func factsStay(x *workbench) {
	facts := x.b.Facts()
	x.write("file", "")
	x.capture("s1")
	x.fork("s1", "f1")
	if x.b.Facts() != facts {
		x.Errorf("the facts were %+v and are %+v", facts, x.b.Facts())
	}
	x.reopen()
	if x.b.Facts() != facts {
		x.Errorf("opened again, the facts were %+v and are %+v", facts, x.b.Facts())
	}
	x.clean()
}
