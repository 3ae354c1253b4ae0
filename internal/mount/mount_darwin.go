package mount

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// FilesystemOf describes the filesystem at path; a symbolic link is followed.
// Errors are *os.PathError. Cost: one system call, which can hang on a network
// filesystem whose server is gone.
func FilesystemOf(path string) (Filesystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Filesystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	unit := int64(st.Bsize)
	return Filesystem{
		Type: vfs.Text(st.Fstypename[:]), Size: int64(st.Blocks) * unit, Free: int64(st.Bfree) * unit, Avail: int64(st.Bavail) * unit,
		ReadOnly: st.Flags&unix.MNT_RDONLY != 0,
	}, nil
}

// List lists the mounts of this machine. Errors are *os.SyscallError.
func List() ([]Point, error) {
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil {
		return nil, os.NewSyscallError("getfsstat", err)
	}
	list := make([]unix.Statfs_t, n+8) // more may be mounted meanwhile
	if n, err = unix.Getfsstat(list, unix.MNT_NOWAIT); err != nil {
		return nil, os.NewSyscallError("getfsstat", err)
	}
	mounts := make([]Point, n)
	for i := range mounts {
		st := &list[i]
		options := "rw"
		if st.Flags&unix.MNT_RDONLY != 0 {
			options = "ro"
		}
		mounts[i] = Point{
			ID: int(uint32(st.Fsid.Val[0])), Dev: uint64(uint32(st.Fsid.Val[0])), Root: "/", Path: vfs.Text(st.Mntonname[:]), Options: options,
			Type: vfs.Text(st.Fstypename[:]), Source: vfs.Text(st.Mntfromname[:]),
		}
	}
	return mounts, nil
}
