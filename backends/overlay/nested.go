//go:build linux

package overlay

import (
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// inTree reports whether the directory dir is inside the directory tree, by following ".." from dir. The
// kernel refuses an overlay that has both as layers. A directory that cannot be read counts as outside.
func inTree(dir, tree string) bool {
	root, err := vfs.Lstat(unix.AT_FDCWD, tree)
	if err != nil {
		return false
	}
	for at := dir; len(at) < unix.PathMax; at += "/.." {
		st, err := vfs.Lstat(unix.AT_FDCWD, at+"/.")
		if err != nil {
			return false
		}
		if st.Ino == root.Ino && st.Dev == root.Dev {
			return true
		}
		up, err := vfs.Lstat(unix.AT_FDCWD, at+"/..")
		if err != nil || up.Ino == st.Ino && up.Dev == st.Dev && up.Mount == st.Mount {
			return false
		}
	}
	return false
}
