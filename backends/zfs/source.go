//go:build linux

package zfs

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A source says in which ZFS dataset, and at which path in it, a tree is stored.
type source struct {
	// dataset is the dataset's name as in zfs(8).
	dataset string
	// within is the path from the root of the dataset to the tree, or ".".
	within string
}

// findSource returns the dataset that is mounted at the tree or above it, and the tree's path in it.
// ErrNotSupported: the tree is no directory on ZFS.
func findSource(tree string) (source, error) {
	if !filepath.IsAbs(tree) || filepath.Clean(tree) != tree {
		return source{}, &errs.Error{Kind: errs.ErrNotSupported, Path: tree, Err: errors.New("not an absolute, clean path")}
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, tree)
	if err != nil {
		return source{}, err
	}
	if !st.IsDir() {
		return source{}, &errs.Error{Kind: errs.ErrNotSupported, Path: tree, Err: errors.New("not a directory")}
	}
	if err := onZFS(tree); err != nil {
		return source{}, err
	}
	mounts, err := mount.List()
	if err != nil {
		return source{}, err
	}
	for _, m := range mounts {
		if uint64(m.ID) == st.Mount {
			return sourceAt(tree, m)
		}
	}
	return source{}, &errs.Error{
		Kind: errs.ErrNotSupported, Path: tree, Err: errors.New("the tree is on a mount of another mount namespace"),
		Hints: []string{"findmnt -T " + errs.Quoted(tree)},
	}
}

// sourceAt returns the ZFS dataset of the directory tree, and the path in it, from m, the mount that contains
// tree.
func sourceAt(tree string, m mount.Point) (source, error) {
	if strings.Contains(m.Source, "@") {
		return source{}, &errs.Error{Kind: errs.ErrReadOnly, Path: tree, Err: errors.New("the tree is in the snapshot " + m.Source)}
	}
	rest, ok := strings.CutPrefix(tree, m.Path)
	if !ok {
		return source{}, &errs.Error{Kind: errs.ErrNotSupported, Path: tree, Err: errors.New("the tree is hidden by another mount at " + m.Path)}
	}
	within := strings.TrimPrefix(filepath.Join(m.Root, rest), "/")
	if within == "" {
		within = "."
	}
	return source{m.Source, within}, nil
}

func onZFS(path string) error {
	fs, err := mount.FilesystemOf(path)
	if err != nil || fs.Type == "zfs" {
		return err
	}
	return &errs.Error{Kind: errs.ErrNotSupported, Path: path, Err: errors.New("the tree is on " + fs.Type + ", not on zfs")}
}

// nameMax is the number of bytes of the longest full name of a dataset or a snapshot
// (ZFS_MAX_DATASET_NAME_LEN of include/sys/fs/zfs.h, less its NUL).
const nameMax = 255

// checkName returns ErrNotSupported if the longest name that snapfs makes from a dataset's name is too
// long.
func checkName(src source) error {
	if long := len(forkName(src.dataset, strings.Repeat("x", uniqueMax))) + len("@"+tag+"-") + uniqueMax; long > nameMax {
		return &errs.Error{
			Kind: errs.ErrNotSupported, Path: src.dataset,
			Err:   errors.New("the dataset's name is too long: the name of a snapshot of its fork would be longer than ZFS allows"),
			Hints: []string{"zfs rename " + src.dataset + " NAME (one that is shorter)"},
		}
	}
	return nil
}
