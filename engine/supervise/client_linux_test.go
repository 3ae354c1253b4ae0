package supervise

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/fdsock"
)

// TestASignalAfterCloseReachesNoOtherConnection closes the handle of a command, gives the number of its descriptor to
// another socket, and signals the command. In a server that socket can be a client's, whose next request would
// then begin with the signal.
func TestASignalAfterCloseReachesNoOtherConnection(t *testing.T) {
	pair := func() [2]int {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return ends
	}
	ends, other := pair(), pair()
	number, err := unix.FcntlInt(uintptr(ends[0]), unix.F_DUPFD_CLOEXEC, 700) // no file of the test gets such a number
	if err = errors.Join(err, unix.Close(ends[0])); err != nil {
		t.Fatal(err)
	}
	g := &client{conn: fdsock.FromFD(number), done: make(chan struct{})}
	go g.listen(func(string) {})
	if err := errors.Join(g.Close(), unix.Dup3(other[0], number, unix.O_CLOEXEC)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Signal(syscall.SIGKILL), g.SignalGroup(syscall.SIGKILL)); err != nil {
		t.Error(err)
	}
	peer := fdsock.FromFD(other[1])
	if came, err := peer.Await(0); came || err != nil {
		t.Errorf("the other socket got the signal: %v, %v", came, err)
	}
	if err := errors.Join(g.Close(), peer.Close(), unix.Close(number), unix.Close(other[0]), unix.Close(ends[1])); err != nil {
		t.Error(err)
	}
}
