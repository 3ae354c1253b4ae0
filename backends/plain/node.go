package plain

import (
	"errors"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// special copies the symbolic link, fifo, socket or device name of the directory here. It never opens the
// file.
func (c *copier) special(here *level, name string, st *vfs.Stat) error {
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
		return written(c.finishSpecial(here, name, st))
	}
	err := c.step("make a special file", func() error {
		return vfs.MakeNode(here.dst, name, st.Mode&unix.S_IFMT|0o600, st.Rdev)
	})
	if errors.Is(err, unix.EPERM) {
		err = &errs.Error{Kind: errs.ErrDenied, Err: errors.New("only root can make a device")}
	}
	if err != nil {
		return written(err)
	}
	return written(c.finishSpecial(here, name, st))
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

// finish gives the file or directory dst the owner, attributes, mode and times of src, described by
// st. The order matters: chown clears set-id bits and capabilities, an ACL is a part of the mode,
// and every change affects the times.
func (c *copier) finish(src, dst int, st *vfs.Stat) error {
	mode := st.Mode & 0o7777
	err := c.step("set the owner", func() error {
		err := unix.Fchown(dst, int(st.UID), int(st.GID))
		if !notPermitted(err) {
			return err
		}
		// An ordinary user cannot give a file away, but can set one of the user's groups.
		mode = modeOfForeign(mode, st.Mode)
		if err := unix.Fchown(dst, -1, int(st.GID)); !notPermitted(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.step("set the attributes", func() error { return copyXattrs(src, "", dst, "") })
	if err != nil {
		return err
	}
	if err := c.step("set the mode", func() error { return unix.Fchmod(dst, mode) }); err != nil {
		return err
	}
	return c.step("set the times", func() error {
		return vfs.SetTimes(dst, &st.ATime, st.MTime)
	})
}

// finishSpecial gives the owner, attributes, mode and times st to the copy called name, which cannot be
// opened, such as a device. A symbolic link has no mode.
func (c *copier) finishSpecial(here *level, name string, st *vfs.Stat) error {
	mode := st.Mode & 0o7777
	err := c.step("set the owner", func() error {
		err := unix.Fchownat(here.dst, name, int(st.UID), int(st.GID), unix.AT_SYMLINK_NOFOLLOW)
		if !notPermitted(err) {
			return err
		}
		mode = modeOfForeign(mode, st.Mode)
		if err := unix.Fchownat(here.dst, name, -1, int(st.GID), unix.AT_SYMLINK_NOFOLLOW); !notPermitted(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.step("set the attributes", func() error {
		return copyXattrs(here.src, name, here.dst, name)
	})
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		err := c.step("set the mode", func() error { return unix.Fchmodat(here.dst, name, mode, 0) })
		if err != nil {
			return err
		}
	}
	return c.step("set the times", func() error {
		return unix.UtimesNanoAt(here.dst, name, times(st), unix.AT_SYMLINK_NOFOLLOW)
	})
}

// notPermitted reports whether err means that this process may not set an owner, or that its
// user namespace does not have that owner.
func notPermitted(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL)
}

// modeOfForeign returns the mode for a copy whose owner is this user instead of the original's; mode and typ
// are the mode and file type of the original. The copy has no set-id bits, which would run programs as this
// user, and the user can read it.
func modeOfForeign(mode, typ uint32) uint32 {
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

// openRead opens the file name in the directory dir for reading, without changing its access time if that is
// permitted. flags are added to those of open(2).
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

// copyXattrs copies the extended attributes of the file called from, in the directory src, to the file called
// to, in dst. An empty name stands for the file that the descriptor itself has open. It skips system
// attributes (security.*, trusted.*) that this process may not set or the filesystem does not support.
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

// forgetDefaultACL removes the default ACL of a directory of the backend, so that copies made in it do not
// inherit it.
func forgetDefaultACL(dir string) error {
	err := vfs.RemoveXattr(unix.AT_FDCWD, dir, "system.posix_acl_default")
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}
