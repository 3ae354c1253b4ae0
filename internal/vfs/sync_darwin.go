package vfs

import (
	"bytes"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Text is what stands before the NUL.
func Text(field []byte) string {
	head, _, _ := bytes.Cut(field, []byte{0})
	return string(head)
}

// SyncFS has all filesystems begin to write what waits (sync(2)); it is not waited
// for, as Linux does.
func SyncFS(int) error { return unix.Sync() }

// FDPath returns a path in /proc that leads this process and its threads to the file that f
// has open, for calls that take no descriptor. f must stay open.
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
