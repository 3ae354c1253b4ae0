package relay

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
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

// Several commands at once write to one open file, as (snapfs exec s -- a & snapfs exec s -- b) > log does. The lines
// of all arrive, as without a relay, where write(2) moves the file's common position under a lock.
func TestTwoRelaysLoseNothingInOneFile(t *testing.T) {
	treetest.NeedRoot(t) // others' files are not relayed
	const relays, lines = 4, 100_000
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var all sync.WaitGroup
	for range relays {
		r, err := OpenFiles(log, nil)
		if err != nil {
			t.Fatal(err)
		}
		command := inside(t, r.Out)
		r.Start()
		all.Go(func() {
			for range lines {
				if _, err := command.WriteString("a line\n"); err != nil {
					t.Error(err)
					break
				}
			}
			r.End(nil)
		})
	}
	all.Wait()
	got, err := os.ReadFile(log.Name())
	if n := bytes.Count(got, []byte("a line\n")); err != nil || n != relays*lines {
		t.Errorf("the file has %d of %d lines: %v", n, relays*lines, err)
	}
}

// A write to the caller's file that does not return is waited for while the caller is there, and no longer once the
// caller has gone. A pipe that nobody reads stands for the file.
func TestAWriteThatDoesNotReturnIsAwaitedForACallerThatIsThere(t *testing.T) {
	treetest.NeedRoot(t) // the sandboxes of others have their own id
	const size = 1 << 20 // more than the pipe holds
	for _, leaves := range []bool{false, true} {
		f, err := os.Create(t.TempDir() + "/log")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := OpenFiles(f, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.outputs[0].to.Close()
		var from *os.File
		if from, r.outputs[0].to, err = newPipe(); err != nil {
			t.Fatal(err)
		}
		command := inside(t, r.Out)
		r.Start()
		if err := setSize(command, size); err != nil {
			t.Fatal(err)
		}
		if _, err := command.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		command.Close()
		asked, read := 0, make(chan int64, 1)
		drain := func() {
			n, _ := io.Copy(io.Discard, from)
			read <- n
		}
		r.EndUnlessStuck(5*time.Millisecond, func() bool {
			if asked++; asked == 3 && !leaves {
				go drain()
			}
			return asked >= 3 && leaves
		})
		lost, written := r.Lost(), r.written()
		if asked < 3 || errors.Is(lost, errStuck) != leaves || (written == size) == leaves {
			t.Errorf("the caller leaves: %v: asked %d times, lost: %v, written: %d", leaves, asked, lost, written)
		}
		r.Wait() // returns although the write does not
		if leaves {
			go drain()
			<-r.outputs[0].ended // before the test closes what it still uses
		}
		if n := <-read; n != size {
			t.Errorf("the file got %d bytes, want %d", n, size)
		}
		from.Close()
	}
}
