package mount

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The calls below are the mount API of Linux 5.2 (mount_setattr: 5.12;
// id-mapping: 5.12 for ext4 and vfat, 5.15 for btrfs). A mount is a descriptor
// until MoveMount gives it a place: nothing is visible to anyone before, and
// closing the descriptor takes it away.

// openTree opens the mount or directory at path, relative to dirfd (open_tree(2)). With unix.OPEN_TREE_CLONE
// it returns a detached copy of the mount with path as its root; with unix.AT_RECURSIVE too, submounts are
// copied. Errors are *os.PathError.
func openTree(dirfd int, path string, flags uint) (*os.File, error) {
	fd, err := unix.OpenTree(dirfd, path, flags|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// CloneTree makes a detached copy of the mount at path, with path as its root, without mounts
// inside path. Cost: some ten microseconds. In a user namespace it fails with EINVAL for a tree
// with submounts that are locked from outside.
func CloneTree(path string) (*os.File, error) {
	return openTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.AT_NO_AUTOMOUNT)
}

// MoveMount attaches a detached mount, or moves an attached one, to the path to. Symbolic links
// in the last element of to are not followed. Errors are *os.LinkError.
func MoveMount(mount *os.File, to string) error {
	err := unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
	runtime.KeepAlive(mount)
	if err != nil {
		return &os.LinkError{Op: "move_mount", Old: mount.Name(), New: to, Err: err}
	}
	return nil
}

// SetMountAttr sets unix.MOUNT_ATTR_* flags, such as read-only, on a mount. A flag about access times in set
// replaces the present one.
func SetMountAttr(mount *os.File, set uint64) error {
	var clear uint64
	if set&unix.MOUNT_ATTR__ATIME != 0 { // a field, not a flag: mount_setattr(2) wants it cleared as a whole
		clear |= unix.MOUNT_ATTR__ATIME
	}
	return mountSetattr(mount, &unix.MountAttr{Attr_set: set, Attr_clr: clear})
}

// IDMap makes a detached mount id-mapped: ids on disk appear as the user namespace userns maps
// them, and written ids are stored mapped back. The mount must never have been attached.
// EINVAL: the filesystem does not support it. Cost: 5 µs.
func IDMap(mount, userns *os.File) error {
	err := mountSetattr(mount, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd()),
	})
	runtime.KeepAlive(userns)
	return err
}

func mountSetattr(mount *os.File, attr *unix.MountAttr) error {
	err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, attr)
	runtime.KeepAlive(mount)
	if err != nil {
		return &os.PathError{Op: "mount_setattr", Path: mount.Name(), Err: err}
	}
	return nil
}

// Unmount detaches the topmost mount at path at once (MNT_DETACH); the mount is freed when its
// last user is gone. A symbolic link as the last element is not followed.
func Unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil {
		return &os.PathError{Op: "umount", Path: path, Err: err}
	}
	return nil
}

// errOption marks the error of a mount option that the kernel refused when it was set. An error without it
// means that the kernel accepted each option and refused the mount as a whole, as an old kernel does for an
// unknown overlay option.
var errOption = errors.New("option")

// refused wraps err, the error of a mount, with the filesystem type fs, the refused option as "key=value" or
// "", and the kernel's messages in log, which are often missing before Linux 6.5.
func refused(fs, option string, err error, log ...string) error {
	if len(log) > 0 {
		err = fmt.Errorf("%w (%s)", err, strings.Join(log, "; "))
	}
	if option != "" {
		err = fmt.Errorf("%w %s: %w", errOption, option, err)
	}
	return fmt.Errorf("mount %s: %w", fs, err)
}

// An FSContext is a filesystem that is being configured before it is mounted (fsopen(2)). [Fsopen] makes it;
// the caller sets options, calls Mount, and closes it.
type FSContext struct {
	fs string
	f  *os.File
}

// Fsopen begins to configure a filesystem of the type fs, such as "overlay", for a mount. The caller closes
// the result.
func Fsopen(fs string) (*FSContext, error) {
	fd, err := unix.Fsopen(fs, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, refused(fs, "", err)
	}
	return &FSContext{fs: fs, f: os.NewFile(uintptr(fd), fs)}, nil
}

// Set sets the mount option key to value. EINVAL: also a value of 256 bytes or more, and before Linux 6.5 a
// value for overlay with a comma. The errors of all methods wrap the error number.
func (c *FSContext) Set(key, value string) error {
	return c.fail(key+"="+value, unix.FsconfigSetString(int(c.f.Fd()), key, value))
}

// SetFlag sets a mount option that has no value, such as "ro".
func (c *FSContext) SetFlag(key string) error {
	return c.fail(key, unix.FsconfigSetFlag(int(c.f.Fd()), key))
}

// Mount creates the filesystem and mounts it, detached, with the
// unix.MOUNT_ATTR_* flags in attr.
func (c *FSContext) Mount(attr uint64) (*os.File, error) {
	if err := unix.FsconfigCreate(int(c.f.Fd())); err != nil {
		return nil, c.fail("", err)
	}
	fd, err := unix.Fsmount(int(c.f.Fd()), unix.FSMOUNT_CLOEXEC, int(attr))
	if err != nil {
		return nil, c.fail("", err)
	}
	return os.NewFile(uintptr(fd), c.fs), nil
}

// Close frees the configuration that [Fsopen] began. Mounts made from it remain.
func (c *FSContext) Close() { c.f.Close() }

func (c *FSContext) fail(option string, err error) error {
	if err == nil {
		return nil
	}
	return refused(c.fs, option, err, c.log()...)
}

// log reads and returns the kernel's messages about the mount being configured. Each read returns one
// message, which begins with its level and a space ("e overlay: ...").
func (c *FSContext) log() []string {
	var lines []string
	buf := make([]byte, 4096)
	for len(lines) < 16 {
		n, err := unix.Read(int(c.f.Fd()), buf)
		if err != nil || n == 0 {
			break
		}
		line := strings.TrimSpace(string(buf[:n]))
		if len(line) > 2 && line[1] == ' ' {
			line = line[2:]
		}
		lines = append(lines, line)
	}
	return lines
}
