package prove

import "golang.org/x/sys/unix"

// socket32 is the stand-in for machines whose 32-bit programs have no system call that hides the address
// family of a socket from a filter. It returns ENOSYS.
func socket32(int, int) error { return unix.ENOSYS }
