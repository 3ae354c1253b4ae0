//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

// newLayer makes an empty layer for writes of the fork id. An overlay shows the root directory of
// its uppermost layer, so the new layer gets the attributes of below, the directory that it will
// cover. The caller holds the lock.
func (s *store) newLayer(ctx context.Context, id, below string) (layer string, err error) {
	layer = uniqueName(id + "-")
	if err := fault.Point(ctx, "make the layer"); err != nil {
		return "", err
	}
	if s.storage != nil || !s.reuse(layer) {
		err = s.makeLayer(layer)
	}
	if err != nil {
		s.toTrash(s.layerPath(layer))
		return "", err
	}
	if err := s.copyAttrs(s.treePath(layer), below); err != nil {
		s.toTrash(s.layerPath(layer))
		return "", err
	}
	return layer, nil
}

func (s *store) makeLayer(layer string) error {
	mkdir := func(path string) error { return os.Mkdir(path, 0o700) }
	err := mkdir(s.layerPath(layer))
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.prepare(); err == nil {
			err = mkdir(s.layerPath(layer))
		}
	}
	if err == nil {
		err = s.makeInner(layer)
	}
	if err == nil {
		err = mkdir(s.treePath(layer))
	}
	if err == nil {
		err = mkdir(s.workPath(layer))
	}
	return err
}

// copyAttrs copies owner, mode, extended attributes and times of the directory like to dir. For an
// ordinary user it copies the part of the ownership that the user may set.
func (s *store) copyAttrs(dir, like string) error {
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
	if err := s.copyXattrs(fd, dir, like); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, want.Mode&0o7777); err != nil {
		return &fs.PathError{Op: "chmod", Path: dir, Err: err}
	}
	return setTimes(fd, dir, want)
}

func (s *store) copyOwner(fd int, have, want vfs.Stat) error {
	if have.UID == want.UID && have.GID == want.GID {
		return nil
	}
	err := unix.Fchown(fd, int(want.UID), int(want.GID))
	if !s.userXattr || err == nil {
		return err
	}
	if have.GID != want.GID {
		_ = unix.Fchown(fd, -1, int(want.GID)) // allowed if the user is a member of the group
	}
	return nil
}

// copyXattrs copies extended attributes, except overlayfs's own. It removes attributes that dir
// has inherited, or has from an earlier use as a layer.
func (s *store) copyXattrs(fd int, dir, like string) error {
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
		if strings.HasPrefix(attr, s.attr("")) {
			continue
		}
		err := vfs.SetXattr(fd, "", attr, []byte(value), 0)
		if err != nil && !(s.userXattr && errors.Is(err, unix.EPERM)) {
			return &fs.PathError{Op: "setxattr " + attr, Path: dir, Err: errors.Unwrap(err)}
		}
	}
	return nil
}

// setTimes sets the access and modification times of an open file.
func setTimes(fd int, path string, st vfs.Stat) error {
	ts := []unix.Timespec{
		{Sec: st.ATime.Sec, Nsec: int64(st.ATime.Nsec)},
		{Sec: st.MTime.Sec, Nsec: int64(st.MTime.Nsec)},
	}
	if err := unix.UtimesNanoAt(fd, "", ts, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "utimes", Path: path, Err: err}
	}
	return nil
}

// shorten replaces layers by the merged layer that stands for them, if the chain is long enough to
// matter.
func (s *store) shorten(layers []string) []string {
	if len(layers) <= s.mergeAt {
		return layers
	}
	for i, layer := range layers {
		if merged := s.mergedInto(layer); merged != "" {
			return append(layers[:i:i], merged)
		}
	}
	return layers
}

// topDir returns the uppermost directory of a chain of layers above a tree.
func (s *store) topDir(layers []string, tree string) string {
	if len(layers) > 0 {
		return s.treePath(layers[0])
	}
	return tree
}

// makeLocked makes the directory home, with a tree in it, and locks it.
func (s *store) makeLocked(ctx context.Context, home string) (release func(), err error) {
	unlock, err := s.lock(ctx, unix.LOCK_SH)
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
		err = os.MkdirAll(home+s.inner()+"/"+treeDir, 0o700)
	}
	if err != nil {
		s.toTrash(home)
		return nil, err
	}
	return func() { dir.Close() }, nil
}

func gone(path string) bool { return unix.Access(path, unix.F_OK) != nil }
