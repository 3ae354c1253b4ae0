//go:build linux

package snapshottest

import (
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An inode is the part of a file's metadata that a comparison relies on if a backend claims
// KeepsInodes.
type inode struct {
	number uint64
	size   int64
	ctime  vfs.Timestamp
}

func keepsInodes(b snapshot.Backend) bool { return b.Facts().KeepsInodes }

// inodesStay checks the backend's claim Facts.KeepsInodes: an unchanged file has the same inode in every
// view. A comparison does not read files that have equal inodes on both sides, so a wrong claim means missed
// changes.
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
		"the fork": x.view("f1"), "the sealed snapshot": x.snap("s2"), "a fork of it": x.view("f2"),
	} {
		if got := x.inode(v, "dir/file"); got != want {
			x.Errorf("%s has the inode %+v, the base %+v", what, got, want)
		}
		if x.inode(v, "other") == x.inode(x.snap("s1"), "other") {
			x.Errorf("%s has the inode of the base for a changed file", what)
		}
	}
	x.clean()
}

// inode returns the inode number, size and ctime of the file at path in a view, a snapshot or a fork of the
// backend.
func (x *workbench) inode(v snapshot.View, path string) (found inode) {
	x.Helper()
	x.in(v, func(dir string) {
		st, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(dir, path))
		x.must(err)
		found = inode{st.Ino, st.Size, st.CTime}
	})
	return found
}
