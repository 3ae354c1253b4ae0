package vfs

import (
	"bytes"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Text returns the bytes of a C string field, such as a mount's path in struct statfs, up to the NUL.
func Text(field []byte) string {
	head, _, _ := bytes.Cut(field, []byte{0})
	return string(head)
}

// SyncFS starts to write the buffered data of all filesystems to disk (sync(2)), whichever descriptor it
// gets, and unlike on Linux does not wait.
func SyncFS(int) error { return unix.Sync() }

// FDPath returns the present path of the open file f, for system calls that take no
// descriptor. f must stay open.
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
	return Text(buf)
}

// SyncData makes sure that the content of the new file f reaches the disk before any name that f gets
// afterwards.
func SyncData(f *os.File) error { return f.Sync() }
