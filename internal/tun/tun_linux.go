package tun

import (
	"os"

	"github.com/snapfs/snapfs/internal/stdio"
	"golang.org/x/sys/unix"
)

// Persist leaves the interface of a TUN device to its network namespace, which
// takes it along when it ends, rather than to the last close(2): that one waits for
// the kernel, some 20 ms, to unregister it (TUNSETPERSIST; __tun_detach of drivers/net/tun.c).
func Persist(tun *os.File) error {
	return stdio.Control(tun, func(fd int) error {
		return os.NewSyscallError("TUNSETPERSIST", unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1))
	})
}
