package btrfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
)

// A source is where a tree lies.
type source struct {
	// root is the root of the subvolume that holds the tree, within the way
	// from there to the tree ("." when it is the tree).
	root, within string
	// mount is the top directory of the mount.
	mount string
	// home is the directory on that mount in which this user's .snapfs belongs,
	// or "".
	home string
	// owner is the uid that owns root.
	owner uint32
}

func sep(dir string) string {
	if dir == "/" {
		return ""
	}
	return "/"
}

// findSource looks at the directories from tree up to the top of its mount.
func findSource(tree string) (source, error) {
	var s source
	if !filepath.IsAbs(tree) || filepath.Clean(tree) != tree {
		return s, &problem{kind: snapshot.ErrNotSupported, path: tree, why: "not an absolute, clean path"}
	}
	first, err := look(tree)
	if err != nil {
		return s, err
	}
	if first.Mode&unix.S_IFMT != unix.S_IFDIR {
		return s, &problem{kind: snapshot.ErrNotSupported, path: tree, why: "not a directory"}
	}
	if err := onBtrfs(tree); err != nil {
		return s, err
	}
	uid := uint32(os.Geteuid())
	for at, here := tree, first; ; {
		if s.root == "" && here.Ino == kernel.BtrfsRootInode {
			s.root, s.owner = at, here.Uid
		}
		if here.Uid == uid || uid == 0 {
			s.home = at
		}
		s.mount = at
		up := filepath.Dir(at)
		if up == at {
			break
		}
		if here, err = look(up); err != nil || here.Mnt_id != first.Mnt_id {
			break
		}
		at = up
	}
	if s.root == "" {
		return s, &problem{
			kind: snapshot.ErrNotSupported, path: tree,
			why:   "only a part of a subvolume is mounted here, and the whole of it cannot be reached",
			hints: []string{"findmnt -o TARGET,SOURCE,FSROOT -T " + tree},
		}
	}
	s.within = "."
	if tree != s.root {
		s.within = strings.TrimPrefix(tree[len(s.root):], "/")
	}
	return s, nil
}

func look(path string) (unix.Statx_t, error) {
	var st unix.Statx_t
	const want = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, want, &st)
	if err != nil {
		return st, &os.PathError{Op: "look at", Path: path, Err: err}
	}
	return st, nil
}

func onBtrfs(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "look at", Path: path, Err: err}
	}
	if st.Type == unix.BTRFS_SUPER_MAGIC {
		return nil
	}
	return &problem{
		kind: snapshot.ErrNotSupported, path: path,
		why:   "the tree lies on " + filesystem(int64(st.Type)) + ", not on btrfs",
		hints: []string{"snapfs pool create && snapfs pool import " + path + " (a btrfs in a file)"},
	}
}

// filesystem names a filesystem by its number (statfs(2)).
func filesystem(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.F2FS_SUPER_MAGIC:
		return "f2fs"
	case 0x2fc12fc1:
		return "zfs"
	case 0xca451a4e:
		return "bcachefs"
	}
	return fmt.Sprintf("a filesystem of type %#x", magic)
}

// beneath opens a directory below dir without leaving it, following no link.
func beneath(dir int, path string) (int, error) {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
