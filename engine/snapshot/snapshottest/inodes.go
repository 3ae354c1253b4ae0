//go:build linux

package snapshottest

import (
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An inode is what a comparison goes by where a backend claims to keep it.
type inode struct {
	number uint64
	size   int64
	ctime  vfs.Timestamp
}

func keepsInodes(b snapshot.Backend) bool { return b.Facts().KeepsInodes }

// inodesStay looks at a file that no fork has changed, by every view that shows
// it. A comparison reads nothing of what has the same inode on both sides: where
// the claim is wrong, changes are missed.
func inodesStay(x *workbench) {
	x.write("dir/file", "base")
	x.write("other", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	x.in(x.view("f1"), func(dir string) { x.put(dir, "other", "changed") })
	x.seal("f1", "s2", snapshot.Idle)
	x.fork("s2", "f2")
	want := x.inode(x.snap("s1"), "dir/file")
	for what, v := range map[string]snapshot.View{
		"the fork": x.view("f1"), "what it was sealed as": x.snap("s2"), "a fork of that": x.view("f2"),
	} {
		if got := x.inode(v, "dir/file"); got != want {
			x.Errorf("%s has the inode %+v, the base %+v", what, got, want)
		}
		if x.inode(v, "other") == x.inode(x.snap("s1"), "other") {
			x.Errorf("%s has the inode of the base for a file that was changed", what)
		}
	}
	x.clean()
}

// inode describes the file at a path of a view.
func (x *workbench) inode(v snapshot.View, path string) (found inode) {
	x.Helper()
	x.in(v, func(dir string) {
		st, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(dir, path))
		x.must(err)
		found = inode{st.Ino, st.Size, st.CTime}
	})
	return found
}
