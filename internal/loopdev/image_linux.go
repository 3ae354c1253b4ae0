package loopdev

import (
	"os"

	"golang.org/x/sys/unix"
)

// Refresh makes the loop device at path adopt the present size of its image file, after the file has grown.
func Refresh(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return &os.PathError{Op: "resize", Path: path, Err: err}
	}
	return nil
}

// SetNoCopy turns off copy on write for f, an empty file that is to be a filesystem image. It
// reports whether later writes overwrite f in place; filesystems other than btrfs always do.
func SetNoCopy(f *os.File) bool {
	const noCopy = 0x00800000 // FS_NOCOW_FL of linux/fs.h
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return false
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|noCopy) == nil
}
