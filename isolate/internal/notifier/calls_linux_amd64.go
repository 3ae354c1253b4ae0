package notifier

import "golang.org/x/sys/unix"

const (
	arch       = 0xc000003e // AUDIT_ARCH_X86_64
	newfstatat = unix.SYS_NEWFSTATAT
)

// older are the system calls of this architecture, beside those that all architectures have, that open or
// look up a file without a directory descriptor, such as open(2). The filter of this package observes them
// too.
var older = []watched{
	{unix.SYS_OPEN, -1, 0, -1, false},
	{unix.SYS_STAT, -1, 0, -1, false},
	{unix.SYS_LSTAT, -1, 0, -1, false},
	{unix.SYS_ACCESS, -1, 0, -1, false},
	{unix.SYS_READLINK, -1, 0, -1, false},
}
