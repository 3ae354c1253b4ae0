package idmap

import (
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func (s *server) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (size uint32, code fuse.Status) {
	err := s.t.with(h.NodeId, func(_ *inode, fd int) error {
		value, err := vfs.GetXattr(fd, "", name)
		if errors.Is(err, unix.EOPNOTSUPP) && isACL(name) {
			err = unix.ENODATA // with EOPNOTSUPP the kernel would refuse every open
		}
		if err != nil {
			return err
		}
		if name == capability {
			value, err = s.ids.capsToShown(value)
		} else {
			value, err = mapXattr(name, value, s.ids.toShownStrict)
		}
		if err == nil {
			size, err = answer(value, dest)
		}
		return err
	})
	return size, status(err)
}

func (s *server) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (size uint32, code fuse.Status) {
	err := s.t.with(h.NodeId, func(_ *inode, fd int) error {
		names, err := vfs.ListXattrs(fd, "")
		if err != nil {
			return err
		}
		var all []byte
		for _, name := range names {
			if !strings.HasPrefix(name, "trusted.") { // the kernel would check the privilege for these against this process, which is root
				all = append(append(all, name...), 0)
			}
		}
		size, err = answer(all, dest)
		return err
	})
	return size, status(err)
}

// answer copies the value of an extended attribute into the reply dest, and returns its size. If dest is
// empty it only returns the size.
func answer(value, dest []byte) (uint32, error) {
	if len(dest) > 0 && len(dest) < len(value) {
		return uint32(len(value)), unix.ERANGE
	}
	copy(dest, value)
	return uint32(len(value)), nil
}

func (s *server) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	return status(s.t.with(in.NodeId, func(_ *inode, fd int) (err error) {
		if name == capability {
			value, err = s.ids.capsToDisk(value)
		} else {
			value, err = mapXattr(name, value, s.ids.toDisk)
		}
		if err == nil {
			err = vfs.SetXattr(fd, "", name, value, int(in.Flags))
		}
		if err != nil || in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID == 0 {
			return err
		}
		st, err := vfs.Lstat(fd, "")
		if err != nil {
			return err
		}
		return unix.Chmod(procPath(fd), st.Mode&0o7777&^unix.S_ISGID)
	}))
}

func (s *server) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return status(s.t.with(h.NodeId, func(_ *inode, fd int) error { return vfs.RemoveXattr(fd, "", name) }))
}
