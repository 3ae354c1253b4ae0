package prove

import (
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call32 makes a system call as 32-bit programs of x86 do, with their number of it and two arguments. It
// returns the result or -errno.
//
//go:noescape
func call32(number, first, second uintptr) (result int32)

// socket32 opens a socket as [socket] does, by the system call of 32-bit programs, socketcall(2). A filter of
// system calls cannot read the address family there. It returns ENOSYS if the kernel has no such calls.
func socket32(family, kind int) (err error) {
	const (
		socketcall   = 102
		callOfSocket = 1
	)
	memory, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_32BIT)
	if err != nil {
		return err
	}
	defer unix.Munmap(memory) //nolint:errcheck // this process ends soon
	args := (*[3]uint32)(unsafe.Pointer(&memory[0]))
	args[0], args[1] = uint32(family), uint32(kind)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the instruction faults in a kernel without the calls
			err = unix.ENOSYS
		}
	}()
	fd := call32(socketcall, callOfSocket, uintptr(unsafe.Pointer(args)))
	if fd < 0 {
		return unix.Errno(-fd)
	}
	return unix.Close(int(fd))
}
