//go:build linux

package mounts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A user namespace cannot mount an image of whiteouts, but a directory of a disk can be the overlay layer with them,
// and any user may make whiteouts (Linux 5.8). The directory is made once, for all containers that hide the same names,
// and is never changed or removed: a running container may have it as a layer.

// maxWhiteoutDirs is how many directories with whiteouts are made, each of some tens of inodes. A new one is needed
// when a secret is written where there was none. A container beyond that has its whiteouts in a tmpfs.
const maxWhiteoutDirs = 128

// fewWhiteouts is how many whiteouts are cheaper in a tmpfs than in a layer of their own.
const fewWhiteouts = 16

// storedWhiteouts returns a directory below images with whiteouts for the absent names of hidden, to be a layer of the
// overlay o directly above its tree. It makes the directory if there is none. It returns "" where that is not possible:
// on filesystems that cannot hold whiteouts, such as overlayfs, and where the tree could contain the directory, which
// overlayfs refuses. Cost: 10 µs, 5 ms for a new directory on an idle disk.
func storedWhiteouts(images string, o *Overlay, hidden []Hidden) string {
	n := 0
	for _, h := range hidden {
		n += len(h.Absent)
	}
	if images == "" || n < fewWhiteouts || o == nil || o.Upper == "" || len(o.Base) > 0 || !o.Nested && !outside(filepath.Dir(images), o.Lower[len(o.Lower)-1]) {
		return ""
	}
	dir := filepath.Join(images, "names", keyOf(hidden, nil))
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeWhiteoutDir(dir, hidden); err == nil {
			info, err = os.Lstat(dir)
		}
	}
	if err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// outside reports whether the directory dir certainly lies outside of the directory tree, so that both can be layers of one
// overlay. The names do not say that: another mount may have a part of the same filesystem.
func outside(dir, tree string) bool {
	root, err := vfs.Lstat(unix.AT_FDCWD, tree)
	if err != nil {
		return false
	}
	at, err := vfs.Lstat(unix.AT_FDCWD, dir+"/.")
	if err != nil {
		return false
	}
	if at.Mount != root.Mount || at.Mount == 0 {
		return at.Dev != root.Dev && oneDevice(dir)
	}
	mount := at.Mount
	for at.Mount == mount && len(dir) < unix.PathMax {
		if at.Ino == root.Ino && at.Dev == root.Dev {
			return false
		}
		dir += "/.."
		up, err := vfs.Lstat(unix.AT_FDCWD, dir)
		if err != nil {
			return false
		}
		if up.Ino == at.Ino && up.Dev == at.Dev {
			return true // the root directory
		}
		at = up
	}
	return at.Mount != mount
}

// oneDevice reports whether all files of the filesystem at path have one device number. On btrfs each subvolume has
// another one.
func oneDevice(path string) bool {
	var at unix.Statfs_t
	if err := unix.Statfs(path, &at); err != nil {
		return false
	}
	switch at.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}

// makeWhiteoutDir makes the directory dir with whiteouts for the absent names of hidden, or an empty file of that name
// if the filesystem cannot hold whiteouts. After an error dir does not exist, also after a power loss.
func makeWhiteoutDir(dir string, hidden []Hidden) error {
	all := filepath.Dir(dir)
	if err := os.MkdirAll(all, 0o700); err != nil {
		return err
	}
	if err := roomForWhiteouts(all); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(all, "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }() // after the rename there is nothing to remove
	err = fillWhiteoutDir(temp, hidden)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return os.WriteFile(dir, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(temp, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have made it
		return err
	}
	return nil
}

// roomForWhiteouts returns an error if there are too many entries in the directory all. It removes those that a process
// left half made.
func roomForWhiteouts(all string) error {
	list, err := os.ReadDir(all)
	if err != nil {
		return err
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), "new-") && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(all, e.Name())) // the next call tries again
		}
	}
	if len(list) >= maxWhiteoutDirs {
		return &os.PathError{Op: "add to", Path: all, Err: unix.EMLINK}
	}
	return nil
}

// fillWhiteoutDir makes the directories of hidden in dir, and whiteouts for their absent names, all on stable storage.
func fillWhiteoutDir(dir string, hidden []Hidden) error {
	first := filepath.Join(dir, whiteoutName)
	if err := unix.Mknod(first, unix.S_IFCHR, 0); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	made := map[string]bool{".": true}
	for _, h := range hidden {
		for d := filepath.Clean(h.Dir); !made[d]; d = filepath.Dir(d) {
			made[d] = true
		}
		if err := os.MkdirAll(filepath.Join(dir, h.Dir), 0o700); err != nil {
			return err
		}
	}
	for _, h := range hidden {
		for _, name := range h.Absent {
			path := filepath.Join(dir, h.Dir, name)
			err := unix.Link(first, path)
			if err == unix.EMLINK { // btrfs allows few links in one directory
				err = unix.Mknod(path, unix.S_IFCHR, 0)
			}
			if err != nil && err != unix.EEXIST {
				return &os.PathError{Op: "link", Path: path, Err: err}
			}
		}
	}
	for d := range made {
		if err := vfs.SyncDir(filepath.Join(dir, d)); err != nil {
			return err
		}
	}
	return nil
}
