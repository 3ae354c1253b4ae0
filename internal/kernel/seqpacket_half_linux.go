package kernel

import (
	"os"

	"golang.org/x/sys/unix"
)

// ShutdownRead wakes whoever waits for a message of the other end, which can
// send none from then on. What is sent to it still arrives.
func (p *Packet) ShutdownRead() error {
	return os.NewSyscallError("shutdown", unix.Shutdown(p.fd, unix.SHUT_RD))
}
