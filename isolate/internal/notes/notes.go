//go:build linux

// Package notes makes files for the processes of a container in a directory that belongs to the container's root, and
// that those processes may have changed in any way.
package notes

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// In calls do with the directory name in the directory run of a container, which it makes if needed, and with the ids
// of the container's root, base on the host. It follows no symbolic link.
func In(run *os.File, name string, base int, do func(dir *os.File) error) error {
	return asRoot(base, func() error {
		if err := unix.Mkdirat(int(run.Fd()), name, 0o755); err != nil && err != unix.EEXIST {
			return err
		}
		dir, err := vfs.OpenBeneath(int(run.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer dir.Close()
		return do(dir)
	})
}

// asRoot calls do with the fsuid and fsgid of the container's root, the id base on the host, because in a
// filesystem mounted in the container no other id can own a file (EOVERFLOW). With base 0 the ids stay.
func asRoot(base int, do func() error) error {
	if base == 0 {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := errors.Join(unix.Setfsgid(base), unix.Setfsuid(base)); err != nil {
		return err
	}
	err := do()
	return errors.Join(err, unix.Setfsuid(0), unix.Setfsgid(0)) // root regains its capabilities with its id
}

// Put replaces the file name in the directory dir, atomically, for every process to read.
func Put(dir *os.File, name string, content []byte) error {
	tmp := "." + name
	if err := unix.Unlinkat(int(dir.Fd()), tmp, 0); err != nil && err != unix.ENOENT {
		return err
	}
	fd, err := unix.Openat(int(dir.Fd()), tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), tmp)
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil { // independent of the umask
		return err
	}
	return unix.Renameat(int(dir.Fd()), tmp, int(dir.Fd()), name)
}
