//go:build linux

package btrfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A source says where on its btrfs filesystem a tree is, and in which directory .snapfs, with the data of its
// snapshots, has to be.
type source struct {
	// root is the root of the subvolume that contains the tree. within is the path of the tree
	// relative to root, or ".".
	root, within string
	// mount is the top directory of the mount.
	mount string
	// home is the directory of that mount in which this user's .snapfs belongs, or "".
	home string
	// owner is the uid of root's owner.
	owner uint32
}

func sep(dir string) string {
	if dir == "/" {
		return ""
	}
	return "/"
}

// findSource finds the btrfs subvolume that contains tree, and the directory for the backend's data .snapfs,
// by examining the directories from tree up to the top of its mount.
func findSource(tree string) (source, error) {
	var s source
	if !filepath.IsAbs(tree) || filepath.Clean(tree) != tree {
		return s, &errs.Error{Kind: errs.ErrNotSupported, Path: tree, Err: errors.New("not an absolute, clean path")}
	}
	first, err := vfs.Lstat(unix.AT_FDCWD, tree)
	if err != nil {
		return s, err
	}
	if !first.IsDir() {
		return s, &errs.Error{Kind: errs.ErrNotSupported, Path: tree, Err: errors.New("not a directory")}
	}
	if err := onBtrfs(tree); err != nil {
		return s, err
	}
	uid := uint32(os.Geteuid())
	for at, here := tree, first; ; {
		if s.root == "" && here.Ino == btrfs.RootInode {
			s.root, s.owner = at, here.UID
		}
		if here.UID == uid || uid == 0 {
			s.home = at
		}
		s.mount = at
		up := filepath.Dir(at)
		if up == at {
			break
		}
		if here, err = vfs.Lstat(unix.AT_FDCWD, up); err != nil || here.Mount != first.Mount {
			break
		}
		at = up
	}
	if s.root == "" {
		return s, &errs.Error{
			Kind: errs.ErrNotSupported, Path: tree,
			Err:   errors.New("only a part of the tree's subvolume is mounted here"),
			Hints: []string{"findmnt -o TARGET,SOURCE,FSROOT -T " + errs.Quoted(tree)},
		}
	}
	s.within = "."
	if tree != s.root {
		s.within = strings.TrimPrefix(tree[len(s.root):], "/")
	}
	return s, nil
}

func onBtrfs(path string) error {
	fs, err := mount.FilesystemOf(path)
	if err != nil || fs.Type == "btrfs" {
		return err
	}
	return &errs.Error{
		Kind: errs.ErrNotSupported, Path: path,
		Err:   errors.New("the tree is on " + fs.Type + ", not on btrfs"),
		Hints: []string{"snapfs pool create && snapfs pool import " + errs.Quoted(path) + " (a btrfs in a file)"},
	}
}

// openIn returns a descriptor of the directory path inside dir, which the caller closes. It follows no symbolic
// link.
func openIn(dir int, path string) (int, error) {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
