package notifier

import "golang.org/x/sys/unix"

const (
	arch       = 0xc00000b7 // AUDIT_ARCH_AARCH64
	newfstatat = unix.SYS_FSTATAT
)

// older would be the system calls that name a file without a directory descriptor, such as open(2), for the
// filter to observe. This architecture has none.
var older []watched
