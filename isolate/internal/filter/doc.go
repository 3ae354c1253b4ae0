// Package filter is the system call filter of a box: a program for the kernel's
// seccomp, as data, so that loading it costs one system call and no work at
// start-up.
//
// It is Docker's default profile (github.com/moby/profiles) for a process with
// the capabilities that a box keeps, assembled by generate, and on top of it:
// the ioctls TIOCSTI and TIOCLINUX are denied, which put input into terminals;
// calls younger than the profile get ENOSYS, which programs expect of an old
// kernel, rather than EPERM, which they do not; 32-bit programs are filtered by
// the same rules.
package filter

//go:generate go run ./generate

// An Instruction is struct sock_filter of linux/filter.h.
type Instruction struct {
	Code   uint16
	JT, JF uint8
	K      uint32
}
