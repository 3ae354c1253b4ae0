package standby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain is also the main function of the processes of a pool. Their sandboxes have no more than a name: the one
// called fails ends with an error, and one called holds ends when its lock, a pipe here, does.
func TestMain(m *testing.M) {
	if len(os.Args) != 2 || os.Args[1] != "supervise" {
		os.Exit(m.Run())
	}
	err := Serve(context.Background(), func(j Job) error {
		fmt.Fprintln(os.Stderr, "log of "+j.Name)
		ready, lock := os.NewFile(uintptr(j.Ready), "ready"), os.NewFile(uintptr(j.Lock), "lock")
		_, err := fmt.Fprint(ready, os.Getpid())
		err = errors.Join(err, ready.Close())
		if j.Name == "holds" {
			_, _ = io.Copy(io.Discard, lock)
		}
		if j.Name == "fails" {
			err = errors.New("it fails")
		}
		return errors.Join(err, lock.Close(), syscall.Close(j.Slot))
	}, func() {})
	if err != nil {
		os.Exit(1)
	}
}

// A bed is a pool with the files of its sandboxes.
type bed struct {
	*Pool
	t   *testing.T
	dir string
}

func newBed(t *testing.T, most int) *bed {
	t.Helper()
	b := &bed{New([]string{"/proc/self/exe", "supervise"}, most), t, t.TempDir()}
	t.Cleanup(b.Close)
	return b
}

// start starts the sandbox called name and returns the id of the process that supervises it. Closing lock ends the
// sandbox called holds.
func (b *bed) start(name string) (pid int, lock *os.File) {
	b.t.Helper()
	log, err := os.Create(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	said, ready, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer said.Close()
	theirs, lock, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { lock.Close() }) // twice is no harm
	err = b.Start(name, log, ready, theirs, log)
	ready.Close()
	theirs.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := io.ReadAll(said)
	if err == nil {
		pid, err = strconv.Atoi(string(text))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return pid, lock
}

// eventually waits until check returns true.
func (b *bed) eventually(what string, check func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !check(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatal("not within a minute: " + what)
		}
	}
}

func (b *bed) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.idle)
}

func (b *bed) awaitWaiting(n int) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%d processes wait", n), func() bool { return b.waiting() == n })
}

func (b *bed) awaitEnd(pid int) {
	b.t.Helper()
	b.eventually("the end of a process", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

func TestOneProcessSupervisesOneSandboxAfterAnother(t *testing.T) {
	b := newBed(t, 2)
	first, _ := b.start("one")
	b.awaitWaiting(1)
	second, _ := b.start("two")
	if first != second {
		t.Errorf("processes %d and %d", first, second)
	}
	b.awaitWaiting(1)
	for _, name := range []string{"one", "two"} {
		if log, err := os.ReadFile(filepath.Join(b.dir, name)); err != nil || string(log) != "log of "+name+"\n" {
			t.Errorf("the log of %s is %q, %v", name, log, err)
		}
	}
	if list, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", first)); err != nil || len(list) == 0 {
		t.Errorf("%d descriptors, %v", len(list), err)
	} else {
		for _, fd := range list {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, b.dir) {
				t.Errorf("a process that waits has the file %s", to)
			}
		}
	}
}

func TestSandboxesAtOnceHaveProcessesOfTheirOwn(t *testing.T) {
	b := newBed(t, 1)
	first, hold := b.start("holds")
	second, _ := b.start("two")
	if first == second {
		t.Errorf("process %d has two sandboxes", first)
	}
	b.awaitWaiting(1)
	hold.Close()
	b.awaitEnd(first) // since another one waits already
	if n := b.waiting(); n != 1 {
		t.Errorf("%d processes wait", n)
	}
}

func TestAProcessEndsAfterAnError(t *testing.T) {
	b := newBed(t, 2)
	pid, _ := b.start("fails")
	b.awaitEnd(pid)
	if n := b.waiting(); n != 0 {
		t.Errorf("%d processes wait", n)
	}
}

func TestAKilledProcessIsReplaced(t *testing.T) {
	b := newBed(t, 2)
	first, _ := b.start("one")
	b.awaitWaiting(1)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.awaitEnd(first)
	if second, _ := b.start("two"); first == second {
		t.Errorf("process %d again", first)
	}
}

func TestThePoolKnowsWhoIsDone(t *testing.T) {
	b := newBed(t, 2)
	if b.Done("holds") != nil || (*Pool)(nil).Done("holds") != nil {
		t.Error("a process supervises a sandbox that was never started")
	}
	pid, hold := b.start("holds")
	done := b.Done("holds")
	select {
	case <-done:
		t.Error("done at once")
	default:
	}
	hold.Close()
	<-done
	if b.Done("holds") != nil {
		t.Error("a process supervises a sandbox that has ended")
	}
	b.awaitWaiting(1)
	again, _ := b.start("holds")
	done = b.Done("holds")
	if err := syscall.Kill(again, syscall.SIGKILL); err != nil || again != pid {
		t.Fatal(again, pid, err)
	}
	<-done
}

func TestProcessesEndWithThePool(t *testing.T) {
	b := newBed(t, 2)
	waits, _ := b.start("one")
	b.awaitWaiting(1)
	if err := syscall.Kill(waits, 0); err != nil {
		t.Fatal(err)
	}
	b.Close()
	b.awaitEnd(waits)
	b.closed = false // as another pool
	holding, hold := b.start("holds")
	b.Close()
	if err := syscall.Kill(holding, 0); err != nil {
		t.Errorf("a process with a sandbox has ended: %v", err)
	}
	hold.Close()
	b.awaitEnd(holding)
}

func TestAProcessDoesNotWaitForEver(t *testing.T) {
	b := newBed(t, 2)
	b.idleTime = time.Millisecond
	pid, _ := b.start("one")
	b.awaitEnd(pid)
	b.awaitWaiting(0)
}
