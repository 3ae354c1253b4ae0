//go:build linux

// Package subvol removes btrfs subvolumes that may contain nested subvolumes.
package subvol

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Remove deletes the btrfs subvolume called name in the open directory dir, after those nested in it,
// read-only ones too. Before it deletes a subvolume, it calls first with its open root directory. After an
// error it can be called again. Errors: fs.ErrNotExist.
func Remove(dir int, name string, first func(root int) error) error {
	root, err := open(dir, name)
	if err != nil {
		return err
	}
	nested, err := btrfs.Nested(root)
	if err == nil {
		err = first(root)
	}
	if err == nil && (len(nested) > 0 || os.Geteuid() != 0) {
		err = btrfs.SetReadOnly(root, false)
	}
	for _, path := range nested {
		if err == nil {
			err = removeNested(root, path, first)
		}
	}
	unix.Close(root)
	if err == nil {
		err = btrfs.Destroy(dir, name)
	}
	switch {
	case err == unix.EPERM, err == unix.EACCES, errors.Is(err, unix.ENOTEMPTY):
		return removeFileByFile(dir, name)
	case err != nil:
		return &os.PathError{Op: "destroy", Path: name, Err: err}
	}
	return nil
}

func removeNested(root int, path string, first func(root int) error) error {
	parent, err := open(root, filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	err = Remove(parent, filepath.Base(path), first)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// open returns a descriptor of the directory path inside dir, such as a nested subvolume, which the caller
// closes. It follows no symbolic link.
func open(dir int, path string) (int, error) {
	return vfs.OpenBeneathFD(dir, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// removeFileByFile deletes the btrfs subvolume called name in dir file by file. An ordinary user must do so
// if the filesystem is not mounted with user_subvol_rm_allowed. Cost: in proportion to its size.
func removeFileByFile(dir int, name string) error {
	path := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // RemoveAll returns the error
		}
		if !d.IsDir() {
			return nil
		}
		if fd, err := unix.Open(p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			_ = btrfs.SetReadOnly(fd, false) // EINVAL for a directory that is no subvolume
			unix.Close(fd)
		}
		return os.Chmod(p, 0o700)
	})
	return errors.Join(err, os.RemoveAll(path))
}
