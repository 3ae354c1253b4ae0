package relay

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func reopenAs(t *testing.T, f *os.File) *os.File {
	t.Helper()
	copied, err := vfs.Duplicate(f)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// A process of the sandbox can read from the pipe of its output. The relay ends nevertheless, also if the bytes have gone
// that the pipe held at the end of the command, and although a process holds the pipe.
func TestTheRelayEndsWithoutBytesThatAProcessHasTaken(t *testing.T) {
	from, to := pipes(t)
	if err := setSize(to, slot); err != nil {
		t.Fatal(err)
	}
	r, err := Open(nil, to, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	left := inside(t, r.Out)
	if _, err := left.Write(make([]byte, 8*slot)); err != nil {
		t.Fatal(err)
	}
	r.stopped.Close() // as End does
	r.Start()
	const most = 60 * time.Second
	if err := wait(int(most.Milliseconds()), []unix.PollFd{on(from, unix.POLLIN)}); err != nil { // the first page has come
		t.Fatal(err)
	}
	taken, err := takeBack(left)
	if err != nil || taken == 0 {
		t.Fatalf("took %d bytes out of the pipe: %v", taken, err)
	}
	if _, err := io.ReadFull(from, make([]byte, 8*slot-taken)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.outputs[0].done:
	case <-time.After(most):
		t.Fatal("the relay waits for bytes that a process has taken")
	}
	r.End(nil)
}
