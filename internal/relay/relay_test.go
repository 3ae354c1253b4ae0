//go:build linux

package relay

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// pipes returns a pipe that closes with the test.
func pipes(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := newPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// inside returns the command's own copy of a stream that the relay has given it.
func inside(t *testing.T, f *os.File) *os.File {
	t.Helper()
	own := reopenAs(t, f)
	t.Cleanup(func() { own.Close() })
	return own
}

// TestInputThatIsNotReadStaysWithTheCaller: to the byte, for few bytes and for many.
func TestInputThatIsNotReadStaysWithTheCaller(t *testing.T) {
	for _, c := range []struct{ size, read int }{{12, 0}, {12, 4}, {12, 12}, {60_000, 1}, {60_000, 5000}, {60_000, 60_000}} {
		from, to := pipes(t)
		text := strings.Repeat("0123456789", c.size/10+1)[:c.size]
		if _, err := to.WriteString(text); err != nil {
			t.Fatal(err)
		}
		to.Close()
		r, err := Open(from, nil, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		command := inside(t, r.In)
		r.Start()
		got := make([]byte, c.read)
		if _, err := io.ReadFull(command, got); err != nil || string(got) != text[:c.read] {
			t.Errorf("%v: the command read %d other bytes: %v", c, len(got), err)
		}
		r.End(nil)
		if rest, err := io.ReadAll(from); err != nil || string(rest) != text[c.read:] {
			t.Errorf("%v: the caller finds %d bytes: %v", c, len(rest), err)
		}
	}
}

// TestTheRelayEndsWithTheCommand: although another process holds the pipe and writes on, all that
// the command has written before arrives, and End returns.
func TestTheRelayEndsWithTheCommand(t *testing.T) {
	from, to := pipes(t)
	r, err := Open(nil, to, to, true)
	if err != nil {
		t.Fatal(err)
	}
	if r.Out == to || r.Out != r.Err {
		t.Fatal("output and messages that are one pipe get none, or two")
	}
	daemon := inside(t, r.Out)
	r.Start()
	if _, err := daemon.WriteString("the command's"); err != nil {
		t.Fatal(err)
	}
	r.End(nil)
	if _, err := daemon.WriteString("later"); err == nil {
		t.Error("a process can write after the command")
	}
	to.Close()
	if got, err := io.ReadAll(from); err != nil || string(got) != "the command's" {
		t.Errorf("the caller got %q: %v", got, err)
	}
}

// TestAReaderThatHasGoneClosesTheCommandsOutput: the command gets SIGPIPE, as without a relay.
func TestAReaderThatHasGoneClosesTheCommandsOutput(t *testing.T) {
	from, to := pipes(t)
	r, err := Open(nil, to, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	command := inside(t, r.Out)
	r.Start()
	from.Close()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := command.WriteString("x"); err != nil {
			break
		}
		if time.Since(start) > 20*time.Second {
			t.Fatal("it can still write")
		}
	}
	r.End(nil)
}

// TestGivingUpEndsARelayThatNobodyReads: a signal does not wait for a full pipe.
func TestGivingUpEndsARelayThatNobodyReads(t *testing.T) {
	from, to := pipes(t)
	r, err := Open(nil, to, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	command := inside(t, r.Out)
	r.Start()
	if _, err := command.Write(make([]byte, 128<<10)); err != nil { // two pipes full
		t.Fatal(err)
	}
	giveUp := make(chan struct{})
	close(giveUp)
	r.End(giveUp)
	from.Close()
	<-r.outputs[0].done // before the test closes what it still uses
}

// TestOnlyFilesAreHandedOver: and pipes where the sandbox ends with the command.
func TestOnlyFilesAreHandedOver(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	_, to := pipes(t)
	for outlives, want := range map[bool]*os.File{false: to, true: nil} {
		r, err := Open(null, to, null, outlives)
		if err != nil {
			t.Fatal(err)
		}
		if r.In != null || r.Err != null || want != nil && r.Out != want || want == nil && r.Out == to {
			t.Errorf("outlives %v: the command gets others", outlives)
		}
		r.Close()
	}
}

// A regular file that root has as an output is relayed where the sandbox ends with the command, because a sandbox has
// other user ids and could not open it again. What does not fit in it is an error.
func TestAFileOfRootIsRelayed(t *testing.T) {
	treetest.NeedRoot(t) // the sandboxes of others have their own id
	f, err := os.OpenFile(t.TempDir()+"/log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if r, err := Open(nil, f, f, true); err != nil || r.Out != f || r.Err != f {
		t.Errorf("where a sandbox outlives its command, the command gets another file: %v", err)
	}
	for _, broken := range []bool{false, true} {
		r, err := Open(nil, f, f, false)
		if err != nil {
			t.Fatal(err)
		}
		if r.Out == f || r.Out != r.Err {
			t.Fatal("output and messages that are one file get none, or two pipes")
		}
		if broken {
			r.outputs[0].to = full
		}
		command := inside(t, r.Out)
		r.Start()
		if _, err := command.WriteString("text\n"); err != nil {
			t.Fatal(err)
		}
		command.Close()
		r.End(nil)
		if lost := r.Lost(); broken != errors.Is(lost, syscall.ENOSPC) {
			t.Errorf("lost: %v", lost)
		}
	}
	if got, err := os.ReadFile(f.Name()); err != nil || string(got) != "text\n" {
		t.Errorf("the file holds %q: %v", got, err)
	}
}

// What a command writes to a file of root is in the file at the end of the command, and what a process writes that the
// command left follows, although the caller has closed the file.
func TestAFileGoesOnForWhatTheCommandLeft(t *testing.T) {
	treetest.NeedRoot(t) // the sandboxes of others have their own id
	path := t.TempDir() + "/log"
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenFiles(f, f)
	if err != nil {
		t.Fatal(err)
	}
	if r.Out == f || r.Out != r.Err {
		t.Fatal("output and messages that are one file get none, or two pipes")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	left := inside(t, r.Out)
	r.Start()
	for i, text := range []string{"the command's\n", "later\n"} {
		if _, err := left.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			r.End(nil)
			if got, err := os.ReadFile(path); err != nil || string(got) != "the command's\n" || r.Lost() != nil {
				t.Errorf("at the end the file holds %q: %v, %v", got, err, r.Lost())
			}
		}
	}
	left.Close()
	r.Wait()
	if got, err := os.ReadFile(path); err != nil || string(got) != "the command's\nlater\n" {
		t.Errorf("the file holds %q: %v", got, err)
	}
}

// Output to a full disk is reported as lost, and closes the pipe, also for what the command left.
func TestAFullFileIsReportedAndClosed(t *testing.T) {
	treetest.NeedRoot(t) // the sandboxes of others have their own id
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
	if r.outputs[0].to, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	command := inside(t, r.Out)
	r.Start()
	if _, err := command.WriteString("text\n"); err != nil {
		t.Fatal(err)
	}
	r.End(nil)
	r.Wait()
	if lost := r.Lost(); !errors.Is(lost, syscall.ENOSPC) {
		t.Errorf("lost: %v", lost)
	}
	if _, err := command.WriteString("more"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a process that the command left can write on: %v", err)
	}
}

// Pipes and devices are handed over unchanged.
func TestOnlyFilesAreOpenedAsFiles(t *testing.T) {
	_, to := pipes(t)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, err := OpenFiles(to, null)
	if err != nil || r.Out != to || r.Err != null {
		t.Errorf("the command gets others: %v", err)
	}
	r.Start()
	r.End(nil)
	r.Wait()
}
