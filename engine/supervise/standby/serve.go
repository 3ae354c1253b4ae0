package standby

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/snapfs/snapfs/internal/fdsock"
)

// A Job is a sandbox that a process of a [Pool] is to supervise. The process owns the descriptors.
type Job struct {
	// Name is the name of the sandbox.
	Name string
	// Ready is the pipe to which the process reports, Lock the sandbox's lock, and Slot its admission slot.
	Ready, Lock, Slot int
}

// poolFD is the descriptor of the connection to the [Pool] that a process of the pool inherits.
const poolFD = 3

// jobFiles is how many files come with a [Job]: the log, the pipe to report to, the sandbox's lock and its
// admission slot. A message with another number is refused.
const jobFiles = 4

// errNoJob means that a message to a process of a [Pool] was not a [Job], as if another program had started it.
var errNoJob = errors.New("only a server of snapfs can start this process")

// Serve is the main function of a process of a [Pool]: it calls do with one sandbox after another, until the
// pool closes the connection, do returns an error, which may leave something of the sandbox in this process, or
// ctx ends while it waits. Meanwhile standard error is the log of the sandbox. After each sandbox,
// while the pool may already send the next one, Serve calls idle.
func Serve(ctx context.Context, do func(Job) error, idle func()) error {
	syscall.CloseOnExec(poolFD)
	pool := fdsock.FromFD(poolFD)
	defer context.AfterFunc(ctx, func() { _ = syscall.Shutdown(poolFD, syscall.SHUT_RD) })() // ends Receive
	for {
		name, files, err := pool.Receive()
		if errors.Is(err, io.EOF) || fdsock.HungUp(err) {
			return nil
		}
		if err != nil {
			return err
		}
		j, err := jobOf(string(name), files)
		if err == nil {
			err = do(j)
		}
		if err != nil {
			return err
		}
		if err := logTo(nil); err != nil {
			return err
		}
		if err := pool.Send([]byte{0}); err != nil {
			return nil // the pool is gone
		}
		idle()
	}
}

// jobOf returns the job that came as a message with files, and makes the first file the log of this process.
func jobOf(name string, files []*os.File) (Job, error) {
	defer fdsock.CloseAll(files)
	if name == "" || len(files) != jobFiles {
		return Job{}, errNoJob
	}
	j := Job{Name: name}
	for i, to := range []*int{&j.Ready, &j.Lock, &j.Slot} {
		fd, err := duplicate(files[i+1])
		if err != nil {
			return Job{}, err
		}
		*to = fd
	}
	return j, logTo(files[0])
}

// logTo makes the file log the standard error of this process, or the null device for nil.
func logTo(log *os.File) error {
	if log == nil {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		log = null
	}
	return redirect(int(log.Fd()), syscall.Stderr)
}

// duplicate returns a new descriptor of a file that came with a [Job], for the process to keep. A program
// that this process starts does not inherit it.
func duplicate(f *os.File) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	return fd, os.NewSyscallError("dup", err)
}
