package tun

import (
	"os"

	"github.com/snapfs/snapfs/internal/stdio"
	"golang.org/x/sys/unix"
)

// Persist makes the interface of a TUN device persistent (TUNSETPERSIST), so that it
// disappears with its network namespace and not with the last close(2), which would wait some
// 20 ms for the kernel to unregister it (__tun_detach of drivers/net/tun.c).
func Persist(tun *os.File) error {
	return stdio.Control(tun, func(fd int) error {
		return os.NewSyscallError("TUNSETPERSIST", unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1))
	})
}
