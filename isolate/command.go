package isolate

import (
	"context"
	"os"
	"syscall"
)

// A Command is a program to run in a box.
type Command struct {
	// Args are the program's name and arguments; at least the name. A name
	// without a slash is looked for in the PATH of Env, inside the box.
	Args []string
	// Env is the whole environment, "name=value" each.
	Env []string
	// Dir is the working directory inside the box: absolute.
	Dir string
	// UID, GID and Groups are who runs it, by the ids inside. Under [Same] they
	// are not used: it is the caller's own user and groups.
	UID, GID uint32
	Groups   []uint32
	// Stdin, Stdout and Stderr are handed over as they are; nil is /dev/null.
	// They stay the caller's to close. Not used with TTY.
	Stdin, Stdout, Stderr *os.File
	// TTY gives the program a terminal of the box's own, of this size, as its
	// controlling terminal and all three streams. See [Process.PTY].
	TTY *Size
}

// Size is that of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// Status is how a process ended.
type Status struct {
	// Code is the exit status, when Signal is 0.
	Code int
	// Signal is what killed it, or 0.
	Signal syscall.Signal
	// CoreDump: the kernel wrote its memory to a file.
	CoreDump bool
}

// ExitCode is the status as a shell reports it: 128 and the signal's number
// for a process that was killed.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// A Process is a program that was started in a box by Start or Exec.
type Process struct{}

// PID is its number inside the box.
func (p *Process) PID() int { return 0 }

// Wait answers with how the process ended, as often as asked. When ctx ends
// first the error matches [ErrInterrupted] and the process goes on. A process
// that was killed with its box has the signal SIGKILL.
func (p *Process) Wait(ctx context.Context) (Status, error) { return Status{}, nil }

// Signal sends sig to the process; to one that has ended it does nothing.
// Errors: [ErrDenied], [ErrInvalid].
func (p *Process) Signal(sig syscall.Signal) error { return nil }

// PTY is the outer end of the process's terminal, or nil. It is closed by
// [Process.Close] and with the box.
func (p *Process) PTY() *os.File { return nil }

// Resize tells the process's terminal its new size; the processes in front
// receive SIGWINCH. Without a terminal it does nothing.
func (p *Process) Resize(size Size) error { return nil }

// Close gives back the descriptors held for the process. It neither ends the
// process nor waits for it. Safe to repeat.
func (p *Process) Close() error { return nil }
