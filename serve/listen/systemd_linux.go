package listen

import (
	"errors"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// firstPassed is the number of the first file descriptor that systemd passes to a service (sd_listen_fds(3)).
const firstPassed = 3

// passedSocket returns the socket that systemd passed to this process, or nil. A process that this one starts
// gets no socket: it has another pid than the variable LISTEN_PID, and does not inherit the descriptor.
func passedSocket() (net.Listener, error) {
	pid, n := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	if pid != strconv.Itoa(os.Getpid()) || n == "" || n == "0" {
		return nil, nil //nolint:nilnil // none was passed
	}
	if n != "1" {
		return nil, errs.New(listening, "", errs.ErrInvalid, "systemd passed "+n+" sockets; one is needed")
	}
	f := os.NewFile(firstPassed, "socket")
	unix.CloseOnExec(firstPassed)
	l, err := net.FileListener(f)
	return l, errs.With(listening, "the socket from systemd", errors.Join(err, f.Close()))
}

// peerUID returns the user id of the process at the other end of a unix socket, by which the server decides
// whether to accept it.
func peerUID(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errs.ErrNotSupported
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(cerr, err); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
