//go:build linux

package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// NewLayer makes an empty layer for writes of the fork id. The new layer gets the attributes
// of below, the directory that it will cover, because an overlay shows the root directory of
// its uppermost layer. The caller holds the lock.
func (s *Store) NewLayer(ctx context.Context, id, below string) (layer string, err error) {
	layer = UniqueName(id + "-")
	if err := fault.Point(ctx, "make the layer"); err != nil {
		return "", err
	}
	if s.Storage != nil || !s.reuse(layer) {
		err = s.makeLayer(layer)
	}
	if err != nil {
		s.ToTrash(s.LayerPath(layer))
		return "", err
	}
	if err := s.CopyAttrs(s.TreePath(layer), below); err != nil {
		s.ToTrash(s.LayerPath(layer))
		return "", err
	}
	return layer, nil
}

func (s *Store) makeLayer(layer string) error {
	mkdir := func(path string) error { return os.Mkdir(path, 0o700) }
	err := mkdir(s.LayerPath(layer))
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.Prepare(); err == nil {
			err = mkdir(s.LayerPath(layer))
		}
	}
	if err == nil && s.Storage != nil {
		err = s.Storage.Make(s.LayerPath(layer) + s.Inner())
	}
	if err == nil {
		err = mkdir(s.TreePath(layer))
	}
	if err == nil {
		err = mkdir(s.WorkPath(layer))
	}
	return err
}

// CopyAttrs copies owner, mode, extended attributes and times of the directory like to dir, which will cover
// like in an overlay. An ordinary user copies the owner and group only as far as permitted. Where the user
// then owns dir, and may not write to like, the mode forbids the owner to write.
func (s *Store) CopyAttrs(dir, like string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	want, err := vfs.Lstat(unix.AT_FDCWD, like)
	if err != nil {
		return err
	}
	have, err := vfs.Lstat(fd, "")
	if err != nil {
		return err
	}
	if err := s.copyOwner(fd, have, want); err != nil {
		return &fs.PathError{Op: "chown", Path: dir, Err: err}
	}
	if have.Mode&0o200 == 0 { // from an earlier use; attributes need write permission
		if err := unix.Fchmod(fd, 0o700); err != nil {
			return &fs.PathError{Op: "chmod", Path: dir, Err: err}
		}
	}
	if err := s.copyXattrs(fd, dir, like); err != nil {
		return err
	}
	mode := want.Mode & 0o7777
	if s.UserXattr && int(want.UID) != os.Geteuid() && unix.Faccessat(unix.AT_FDCWD, like, unix.W_OK, unix.AT_EACCESS) != nil {
		mode &^= 0o200
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: dir, Err: err}
	}
	return SetTimes(fd, dir, want)
}

func (s *Store) copyOwner(fd int, have, want vfs.Stat) error {
	if have.UID == want.UID && have.GID == want.GID {
		return nil
	}
	err := unix.Fchown(fd, int(want.UID), int(want.GID))
	if !s.UserXattr || err == nil {
		return err
	}
	if have.GID != want.GID {
		_ = unix.Fchown(fd, -1, int(want.GID)) // allowed if the user is a member of the group
	}
	return nil
}

// copyXattrs copies extended attributes, except overlayfs's own, from the directory like to dir, open as fd.
// It removes attributes that dir has inherited, or has from an earlier use as a layer.
func (s *Store) copyXattrs(fd int, dir, like string) error {
	old, err := vfs.ListXattrs(fd, "")
	if err != nil {
		return err
	}
	all, err := vfs.Xattrs(unix.AT_FDCWD, like)
	if err != nil {
		return err
	}
	for _, attr := range old {
		if _, keep := all[attr]; keep || strings.HasPrefix(attr, "security.") {
			continue // the label of a security module
		}
		if err := vfs.RemoveXattr(fd, "", attr); err != nil {
			return err
		}
	}
	for attr, value := range all {
		if strings.HasPrefix(attr, s.AttrPrefix()) {
			continue
		}
		err := vfs.SetXattr(fd, "", attr, []byte(value), 0)
		if err != nil && !(s.UserXattr && errors.Is(err, unix.EPERM)) {
			return &fs.PathError{Op: "setxattr " + attr, Path: dir, Err: errors.Unwrap(err)}
		}
	}
	return nil
}

// SetTimes sets the access and modification times of the open file fd to those in st. path is only for the
// text of an error.
func SetTimes(fd int, path string, st vfs.Stat) error {
	ts := []unix.Timespec{
		{Sec: st.ATime.Sec, Nsec: int64(st.ATime.Nsec)},
		{Sec: st.MTime.Sec, Nsec: int64(st.MTime.Nsec)},
	}
	if err := unix.UtimesNanoAt(fd, "", ts, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "utimes", Path: path, Err: err}
	}
	return nil
}

// Shorten returns the list layers, topmost first, for a new snapshot or fork. If the list is longer than the
// first of Store.ChainLimits and a merged layer replaces the lowest ones, that layer stands in place of them.
func (s *Store) Shorten(layers []string) []string {
	if len(layers) < 2 { // there is nothing to merge
		return layers
	}
	mergeAt, _ := s.ChainLimits()
	return shorten(layers, mergeAt, s.mergedInto)
}

// shorten is Shorten for lists of more than mergeAt layers; merged returns the layer that replaces a layer and
// those below it, or "".
func shorten(layers []string, mergeAt int, merged func(layer string) string) []string {
	if len(layers) <= max(mergeAt, 1) {
		return layers
	}
	for i, layer := range layers {
		if by := merged(layer); by != "" {
			return append(layers[:i:i], by)
		}
	}
	return layers
}

// TopDir returns the uppermost directory of a chain of layers above tree: the first layer's
// tree, or tree itself.
func (s *Store) TopDir(layers []string, tree string) string {
	if len(layers) > 0 {
		return s.TreePath(layers[0])
	}
	return tree
}

// MakeLocked creates home, the directory of a new layer, with an empty tree in it. It locks the layer against
// removal by sweeps until release is called.
func (s *Store) MakeLocked(ctx context.Context, home string) (release func(), err error) {
	unlock, err := s.Lock(ctx, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := fault.Point(ctx, "make the copy's directory"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.Open(home)
	if err == nil {
		err = flock(ctx, int(dir.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		err = os.MkdirAll(home+s.Inner()+"/"+TreeDir, 0o700)
	}
	if err != nil {
		s.ToTrash(home)
		return nil, err
	}
	return func() { vfs.Unlock(dir) }, nil
}

// IsGone reports whether nothing exists at path, such as a directory of the store, that this process can see.
func IsGone(path string) bool { return unix.Access(path, unix.F_OK) != nil }
