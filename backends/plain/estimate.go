package plain

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

var _ snapshot.Estimator = (*backend)(nil)

// Estimate returns the size of a copy of the tree, for [snapshot.Estimator]. It skips entries that it cannot
// read; the copy itself reports their error.
func (b *backend) Estimate(ctx context.Context, tree snapshot.Tree) (snapshot.CopySize, error) {
	root, err := vfs.Lstat(unix.AT_FDCWD, tree.Path)
	if err != nil {
		return snapshot.CopySize{}, fail("estimating", "", &fs.PathError{Op: "stat", Path: tree.Path, Err: err})
	}
	var own inode
	if st, err := vfs.Lstat(unix.AT_FDCWD, b.dir); err == nil {
		own = inodeOf(&st)
	}
	w := snapshot.CopySize{Room: b.room()}
	linked := map[inode]bool{}
	err = filepath.WalkDir(tree.Path, func(path string, _ fs.DirEntry, _ error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		st, err := vfs.Lstat(unix.AT_FDCWD, path)
		switch {
		case err != nil:
			return nil //nolint:nilerr // deleted meanwhile
		case st.IsDir() && inodeOf(&st) == own:
			return fs.SkipDir
		case st.Nlink > 1 && !st.IsDir() && linked[inodeOf(&st)]:
			return nil
		}
		w.Files++
		if st.Mount != root.Mount || st.Dev != root.Dev {
			if st.IsDir() {
				return fs.SkipDir // a mount point stays empty in the copy
			}
			return nil
		}
		w.Bytes += snapshot.Bytes(st.Blocks) * 512
		if st.Nlink > 1 && !st.IsDir() {
			linked[inodeOf(&st)] = true
		}
		return nil
	})
	return w, fail("estimating", "", err)
}

// room returns the free bytes of the disk on which copies of trees are stored, or -1 where the size of a copy
// is not known before, on filesystems that share blocks or compress.
func (b *backend) room() snapshot.Bytes {
	for dir := b.dir; ; dir = filepath.Dir(dir) { // it may not exist yet
		f, err := mount.FilesystemOf(dir)
		switch {
		case err == nil && (f.Type == "ext4" || f.Type == "tmpfs"):
			return snapshot.Bytes(f.Free)
		case err == nil || dir == "/":
			return -1
		}
	}
}
