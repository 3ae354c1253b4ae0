// Package filter is the system call filter of a container: a seccomp program as data, so that loading it costs
// one system call and no work at start-up.
//
// It is Docker's default profile (github.com/moby/profiles) for a process with the capabilities of a
// container's root, assembled by generate, with these changes:
//
//   - It denies ioctls that insert input into a terminal (TIOCSTI, TIOCLINUX) or take it from its other users
//     (TIOCEXCL, TIOCSETD, TIOCVHANGUP, TIOCCONS, TIOCSLCKTRMIOS).
//   - It denies sockets to the hypervisor (AF_VSOCK) and of whole packets (AF_PACKET, AF_XDP), and socket(2)
//     by way of socketcall(2), whose address family it cannot read. 32-bit programs of the C library glibc know
//     no other way, so they open no sockets.
//   - System calls younger than the profile fail with ENOSYS, which programs expect of an old kernel, instead of EPERM.
//   - 32-bit programs are filtered by the same rules.
package filter

//go:generate go run ./generate

// Instruction is one instruction of the seccomp program that filters a container's system calls: struct
// sock_filter of linux/filter.h.
type Instruction struct {
	Code   uint16
	JT, JF uint8
	K      uint32
}
