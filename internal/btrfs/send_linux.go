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

// Send writes the read-only subvolume that is open as fd to the pipe out, as
// a stream of version 1: as the difference to the read-only subvolume with the id
// parent, which share it with, or whole for 0. Only root may. It blocks until all
// is written, or nobody reads any more: EPIPE. EAGAIN: the filesystem is being
// balanced.
//
// A signal in the middle would have the kernel begin anew, and Go's scheduler
// sends them all the time: so none reaches the thread meanwhile.
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
