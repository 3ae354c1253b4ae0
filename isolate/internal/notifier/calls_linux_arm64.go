package notifier

import "golang.org/x/sys/unix"

const (
	arch       = 0xc00000b7 // AUDIT_ARCH_AARCH64
	newfstatat = unix.SYS_FSTATAT
)

// older are the calls without a directory, of which this architecture has none.
var older []watched
