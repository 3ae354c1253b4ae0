package notifier

import "golang.org/x/sys/unix"

const (
	arch       = 0xc000003e // AUDIT_ARCH_X86_64
	newfstatat = unix.SYS_NEWFSTATAT
)

// older are the calls without a directory, which this architecture has besides.
var older = []watched{
	{unix.SYS_OPEN, -1, 0, -1, false},
	{unix.SYS_STAT, -1, 0, -1, false},
	{unix.SYS_LSTAT, -1, 0, -1, false},
	{unix.SYS_ACCESS, -1, 0, -1, false},
	{unix.SYS_READLINK, -1, 0, -1, false},
}
