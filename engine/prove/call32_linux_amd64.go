package prove

import (
	"encoding/binary"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// call32 makes a system call as 32-bit programs of x86 do, with their number of it and two arguments, of which
// the second is an address below 4 GiB. It returns the result or -errno.
//
//go:noescape
func call32(number, first uintptr, second *byte) (result int32)

// socket32 opens a socket as [socket] does, by the system call of 32-bit programs, socketcall(2). A filter of
// system calls cannot read the address family there. It returns ENOSYS if the kernel has no such calls.
func socket32(family, kind int) (err error) {
	const (
		socketcall   = 102
		callOfSocket = 1
	)
	args, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_32BIT)
	if err != nil {
		return err
	}
	defer unix.Munmap(args) //nolint:errcheck // this process ends soon
	binary.NativeEndian.PutUint32(args, uint32(family))
	binary.NativeEndian.PutUint32(args[4:], uint32(kind))
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the instruction faults in a kernel without the calls
			err = unix.ENOSYS
		}
	}()
	fd := call32(socketcall, callOfSocket, &args[0])
	if fd < 0 {
		return unix.Errno(-fd)
	}
	return unix.Close(int(fd))
}
