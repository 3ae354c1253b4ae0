package plain

import (
	"errors"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// node copies what is neither a file nor a directory: a symbolic link, fifo,
// socket or device. It is never opened, only made again.
func (c *copier) node(here *level, name string, st *vfs.Stat) error {
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := readlink(here.src, name)
		if errors.Is(err, unix.EINVAL) {
			return errAgain
		}
		if err != nil {
			return err
		}
		err = c.step("make a symbolic link", func() error { return unix.Symlinkat(target, here.dst, name) })
		if err != nil {
			return written(err)
		}
		return written(c.finishNode(here, name, st))
	}
	err := c.step("make a special file", func() error {
		return vfs.MakeNode(here.dst, name, st.Mode&unix.S_IFMT|0o600, st.Rdev)
	})
	if errors.Is(err, unix.EPERM) {
		err = &reason{errs.ErrDenied, "only root may make a device"}
	}
	if err != nil {
		return written(err)
	}
	return written(c.finishNode(here, name, st))
}

func readlink(dir int, name string) (string, error) {
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil || n < size {
			return string(buf[:max(n, 0)]), err
		}
	}
}

// finish gives the file or directory dst the owner, attributes, mode and times
// of src, which st describes. In this order: a change of
// owner takes set-id bits and capabilities away, an access control list is part of
// the mode, and everything changes the times.
func (c *copier) finish(src, dst int, st *vfs.Stat) error {
	mode := st.Mode & 0o7777
	err := c.step("give it its owner", func() error {
		err := unix.Fchown(dst, int(st.UID), int(st.GID))
		if !refused(err) {
			return err
		}
		// An ordinary user cannot give a file away. The group may be one of his.
		mode = foreign(mode, st.Mode)
		if err := unix.Fchown(dst, -1, int(st.GID)); !refused(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.step("give it its attributes", func() error { return copyXattrs(src, "", dst, "") })
	if err != nil {
		return err
	}
	if err := c.step("give it its mode", func() error { return unix.Fchmod(dst, mode) }); err != nil {
		return err
	}
	return c.step("give it its times", func() error {
		return vfs.SetTimes(dst, &st.ATime, st.MTime)
	})
}

// finishNode does what finish does for what cannot be opened. A symbolic link
// has no mode.
func (c *copier) finishNode(here *level, name string, st *vfs.Stat) error {
	mode := st.Mode & 0o7777
	err := c.step("give it its owner", func() error {
		err := unix.Fchownat(here.dst, name, int(st.UID), int(st.GID), unix.AT_SYMLINK_NOFOLLOW)
		if !refused(err) {
			return err
		}
		mode = foreign(mode, st.Mode)
		if err := unix.Fchownat(here.dst, name, -1, int(st.GID), unix.AT_SYMLINK_NOFOLLOW); !refused(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.step("give it its attributes", func() error {
		return copyXattrs(here.src, name, here.dst, name)
	})
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		err := c.step("give it its mode", func() error { return unix.Fchmodat(here.dst, name, mode, 0) })
		if err != nil {
			return err
		}
	}
	return c.step("give it its times", func() error {
		return unix.UtimesNanoAt(here.dst, name, times(st), unix.AT_SYMLINK_NOFOLLOW)
	})
}

// refused: this process may not, or the user namespace has no such owner.
func refused(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL)
}

// foreign is the mode of a copy that belongs to us though its original does
// not: it has no set-id bits, which would make it act for us, and we can read it.
func foreign(mode, typ uint32) uint32 {
	mode &^= unix.S_ISUID | unix.S_ISGID
	if typ&unix.S_IFMT == unix.S_IFDIR {
		return mode | 0o500
	}
	return mode | 0o400
}

func times(st *vfs.Stat) []unix.Timespec {
	return []unix.Timespec{
		{Sec: st.ATime.Sec, Nsec: int64(st.ATime.Nsec)},
		{Sec: st.MTime.Sec, Nsec: int64(st.MTime.Nsec)},
	}
}

// openRead opens a name to read it, leaving its time of access alone where
// that is allowed.
func openRead(dir int, name string, flags int) (int, error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | vfs.ONoatime
	for {
		fd, err := unix.Openat(dir, name, flags, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EPERM) && flags&vfs.ONoatime != 0:
			flags &^= vfs.ONoatime
		default:
			return fd, err
		}
	}
}

// copyXattrs gives the copy, to in the directory dst, all attributes of from in
// src; an empty name is the descriptor itself. Those of the system (security.*,
// trusted.*) that this process may not set, or that the copy's filesystem has
// no use for, are left out.
func copyXattrs(src int, from string, dst int, to string) error {
	all, err := vfs.Xattrs(src, from)
	if err != nil {
		return err
	}
	for attr, value := range all {
		err := vfs.SetXattr(dst, to, attr, []byte(value), 0)
		ours := strings.HasPrefix(attr, "user.") || strings.HasPrefix(attr, "system.posix_acl_")
		if err != nil && (ours || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EOPNOTSUPP)) {
			return err
		}
	}
	return nil
}

// forgetDefaultACL keeps what is made in a directory from inheriting a list.
func forgetDefaultACL(dir string) error {
	err := vfs.RemoveXattr(unix.AT_FDCWD, dir, "system.posix_acl_default")
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}
