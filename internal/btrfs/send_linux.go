package btrfs

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const btrfsSend = 38

type btrfsSendArgs struct {
	fd      int64
	sources uint64
	source  *uint64
	parent  uint64
	flags   uint64
	version uint32
	_       [28]byte
}

// Send writes the read-only subvolume open as fd to the pipe out, as a send stream of version
// 1: only the difference to the read-only subvolume with the id parent, or everything if
// parent is 0. Send blocks until all is written. EPERM: not root; EPIPE: the reader is gone;
// EAGAIN: the filesystem is being balanced.
//
// Send blocks all signals in its thread, because a signal would make the kernel restart the
// stream, and Go's scheduler sends signals often.
func Send(fd, out int, parent uint64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return err
	}
	args := btrfsSendArgs{fd: int64(out), parent: parent}
	if parent != 0 {
		args.sources, args.source = 1, &parent
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), IocWrite<<30|unsafe.Sizeof(args)<<16|0x94<<8|btrfsSend, uintptr(unsafe.Pointer(&args)))
	runtime.KeepAlive(&parent)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}
