package kernel

import (
	"bytes"
	"os"
	"runtime"
	"unsafe"

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
		Type: text(st.Fstypename[:]), Size: int64(st.Blocks) * unit, Free: int64(st.Bfree) * unit, Avail: int64(st.Bavail) * unit,
		Files: st.Files, FreeFiles: st.Ffree, ReadOnly: st.Flags&unix.MNT_RDONLY != 0, NameMax: unix.NAME_MAX,
	}, nil
}

// Mounts lists the mounts of this machine. Errors are *os.SyscallError.
func Mounts() ([]MountPoint, error) {
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil {
		return nil, os.NewSyscallError("getfsstat", err)
	}
	list := make([]unix.Statfs_t, n+8) // more may be mounted meanwhile
	if n, err = unix.Getfsstat(list, unix.MNT_NOWAIT); err != nil {
		return nil, os.NewSyscallError("getfsstat", err)
	}
	mounts := make([]MountPoint, n)
	for i := range mounts {
		st := &list[i]
		options := "rw"
		if st.Flags&unix.MNT_RDONLY != 0 {
			options = "ro"
		}
		mounts[i] = MountPoint{
			ID: int(uint32(st.Fsid.Val[0])), Dev: uint64(uint32(st.Fsid.Val[0])), Root: "/", Path: text(st.Mntonname[:]), Options: options,
			Type: text(st.Fstypename[:]), Source: text(st.Mntfromname[:]),
		}
	}
	return mounts, nil
}

// text is what stands before the NUL.
func text(field []byte) string {
	head, _, _ := bytes.Cut(field, []byte{0})
	return string(head)
}

// IsBtrfs reports whether fd is on btrfs, which is never so here.
func IsBtrfs(int) (bool, error) { return false, nil }

// SyncFS has all filesystems begin to write what waits (sync(2)); it is not waited
// for, as Linux does.
func SyncFS(int) error { return unix.Sync() }

// FDPath is the path that f has now (F_GETPATH), for calls that take no descriptor:
// after a rename it leads elsewhere. "" where it has none any more.
func FDPath(f *os.File) string {
	defer runtime.KeepAlive(f)
	return pathOf(int(f.Fd()))
}

func pathOf(fd int) string {
	buf := make([]byte, unix.PathMax)
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETPATH, int(uintptr(unsafe.Pointer(&buf[0]))))
	runtime.KeepAlive(buf)
	if err != nil {
		return ""
	}
	return text(buf)
}
