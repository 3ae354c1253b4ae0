package plain

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// node copies what is neither a file nor a directory: a symbolic link, fifo,
// socket or device. It is never opened, only made again.
func (c *copier) node(here *level, name string, st *unix.Statx_t) error {
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
	dev := unix.Mkdev(st.Rdev_major, st.Rdev_minor)
	err := c.step("make a special file", func() error {
		return unix.Mknodat(here.dst, name, uint32(st.Mode&unix.S_IFMT)|0o600, int(dev))
	})
	if errors.Is(err, unix.EPERM) {
		err = &reason{snapshot.ErrDenied, "only root may make a device"}
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
// of the one that st describes and source names. In this order: a change of
// owner takes set-id bits and capabilities away, an access control list is part of
// the mode, and everything changes the times.
func (c *copier) finish(source string, dst int, st *unix.Statx_t) error {
	mode := uint32(st.Mode) & 0o7777
	err := c.step("give it its owner", func() error {
		err := unix.Fchown(dst, int(st.Uid), int(st.Gid))
		if !refused(err) {
			return err
		}
		// An ordinary user cannot give a file away. The group may be one of his.
		mode = foreign(mode, st.Mode)
		if err := unix.Fchown(dst, -1, int(st.Gid)); !refused(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.step("give it its attributes", func() error { return copyXattrs(fdNode(source), fdNode(fdPath(dst))) })
	if err != nil {
		return err
	}
	if err := c.step("give it its mode", func() error { return unix.Fchmod(dst, mode) }); err != nil {
		return err
	}
	return c.step("give it its times", func() error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(dst), times(st), 0)
	})
}

// finishNode does what finish does for what cannot be opened. A symbolic link
// has no mode.
func (c *copier) finishNode(here *level, name string, st *unix.Statx_t) error {
	mode := uint32(st.Mode) & 0o7777
	err := c.step("give it its owner", func() error {
		err := unix.Fchownat(here.dst, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
		if !refused(err) {
			return err
		}
		mode = foreign(mode, st.Mode)
		if err := unix.Fchownat(here.dst, name, -1, int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); !refused(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.step("give it its attributes", func() error {
		return copyXattrs(linkNode(fdPath(here.src)+"/"+name), linkNode(fdPath(here.dst)+"/"+name))
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
func foreign(mode uint32, typ uint16) uint32 {
	mode &^= unix.S_ISUID | unix.S_ISGID
	if typ&unix.S_IFMT == unix.S_IFDIR {
		return mode | 0o500
	}
	return mode | 0o400
}

func times(st *unix.Statx_t) []unix.Timespec {
	return []unix.Timespec{
		{Sec: st.Atime.Sec, Nsec: int64(st.Atime.Nsec)},
		{Sec: st.Mtime.Sec, Nsec: int64(st.Mtime.Nsec)},
	}
}

// statAt describes a name, or the descriptor itself when name is empty. It
// never follows a symbolic link nor sets an automounter off.
func statAt(dir int, name string, st *unix.Statx_t) error {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	return unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME|unix.STATX_MNT_ID, st)
}

// openRead opens a name to read it, leaving its time of access alone where
// that is allowed.
func openRead(dir int, name string, flags int) (int, error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags|unix.O_NOATIME, 0)
	for errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINTR) {
		again, e := unix.Openat(dir, name, flags, 0)
		if !errors.Is(e, unix.EINTR) {
			return again, e
		}
	}
	return fd, err
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// A node names a file for the calls on extended attributes, some of which have
// no form with a descriptor and a name.
type node struct {
	path   string
	follow bool
}

func fdNode(path string) node   { return node{path, true} }
func linkNode(path string) node { return node{path, false} }

// copyXattrs gives dst all attributes of src. Those of the system (security.*,
// trusted.*) that this process may not set, or that the copy's filesystem has
// no use for, are left out.
func copyXattrs(src, dst node) error {
	names, err := src.list()
	if err != nil {
		return err
	}
	for _, name := range names {
		value, err := src.get(name)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err == nil {
			err = dst.set(name, value)
		}
		user := strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl_")
		if err != nil && (user || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EOPNOTSUPP)) {
			return err
		}
	}
	return nil
}

// forgetDefaultACL keeps what is made in a directory from inheriting a list.
func forgetDefaultACL(dir string) error {
	err := unix.Removexattr(dir, "system.posix_acl_default")
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

func (n node) list() ([]string, error) {
	call := unix.Llistxattr
	if n.follow {
		call = unix.Listxattr
	}
	buf, err := grow(func(b []byte) (int, error) { return call(n.path, b) })
	if errors.Is(err, unix.EOPNOTSUPP) || len(buf) == 0 {
		return nil, ignoreUnsupported(err)
	}
	return strings.Split(strings.TrimSuffix(string(buf), "\x00"), "\x00"), err
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

func (n node) get(name string) ([]byte, error) {
	call := unix.Lgetxattr
	if n.follow {
		call = unix.Getxattr
	}
	return grow(func(b []byte) (int, error) { return call(n.path, name, b) })
}

func (n node) set(name string, value []byte) error {
	if n.follow {
		return unix.Setxattr(n.path, name, value, 0)
	}
	return unix.Lsetxattr(n.path, name, value, 0)
}

// grow calls with larger and larger buffers.
func grow(call func([]byte) (int, error)) ([]byte, error) {
	for size := 1 << 10; ; size *= 4 {
		buf := make([]byte, size)
		n, err := call(buf)
		if errors.Is(err, unix.ERANGE) && size < 1<<20 {
			continue
		}
		return buf[:max(n, 0)], err
	}
}
