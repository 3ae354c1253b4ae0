package command

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

var errNoInput = errs.New("writing input", "", errs.ErrClosed, "the command has no open input")

// Write writes to the input of the command until ctx ends, and returns how many bytes the command's pipe has taken. For
// a terminal, whose writing end has no deadline, it returns with the command at the latest. Errors: ErrClosed if the
// command has no open input; ErrInterrupted if ctx has ended.
func (x *Running) Write(ctx context.Context, p []byte) (n int, err error) {
	x.inputMu.Lock()
	defer x.inputMu.Unlock()
	if x.input == nil {
		return 0, errNoInput
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = x.input.SetWriteDeadline(time.Unix(1, 0)) // a pipe has deadlines
		close(ended)
	})
	n, err = x.input.Write(p)
	if !stop() {
		<-ended
		_ = x.input.SetWriteDeadline(time.Time{})
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errs.With("writing input", "", errors.Join(errs.ErrInterrupted, ctx.Err()))
	case errors.Is(err, os.ErrClosed), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO):
		return n, errNoInput
	}
	return n, err
}

// CloseInput ends the input of the command. A second call does nothing. Errors: ErrClosed for a command
// without an input, and for a terminal, whose input ends only by a key.
func (x *Running) CloseInput() error {
	if x.input == nil || x.outputs == nil {
		return errNoInput
	}
	x.input.Close()
	return nil
}

// Resize sets the size of the command's terminal. Errors: ErrInvalid if the command has no terminal, or for a
// size that no terminal has.
func (x *Running) Resize(s Size) error {
	if err := s.Check(); err != nil {
		return err
	}
	if x.outputs != nil {
		return errs.New(resizing, "", errs.ErrInvalid, "the command has no terminal")
	}
	return x.process.Resize(isolate.Size{Rows: s.Rows, Cols: s.Cols})
}

const resizing = "resizing a terminal"

// Check returns ErrInvalid for a size that no terminal has: one with no column or no row, or with too many.
func (s Size) Check() error {
	const most = 1<<15 - 1
	if s.Cols == 0 || s.Rows == 0 || s.Cols > most || s.Rows > most {
		return errs.New(resizing, "", errs.ErrInvalid, "a terminal has from 1 to 32767 columns and rows")
	}
	return nil
}

// Signal sends the signal called name to the command and the processes of its group. Errors: ErrInvalid for a
// name that [signalNames] does not list.
func (x *Running) Signal(name string) error {
	n, ok := signals()[strings.TrimPrefix(name, "SIG")]
	if !ok {
		return errs.New("sending a signal", "", errs.ErrInvalid, "the signal must be one of "+strings.Join(signalNames(), ", "))
	}
	return x.process.SignalGroup(n)
}

func signals() map[string]syscall.Signal {
	return map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	}
}

// signalNames lists the names of the signals that a client can send to a command.
func signalNames() []string {
	return []string{"HUP", "INT", "QUIT", "KILL", "TERM", "USR1", "USR2", "STOP", "CONT"}
}
