package run

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A Timed program is prepared once and run many times, with nothing between
// the clock and the program but fork, exec and wait: its streams are files that
// are open already, and no goroutine serves them.
type Timed struct {
	program Program
	path    string
	null    *os.File
	stderr  *os.File
}

// Prepare gets a program ready to be timed. It gets empty standard input; its
// output is dropped, and what it says on standard error kept for the error.
// Errors: *MissingError.
func Prepare(p Program) (*Timed, error) {
	path, err := Look(p.Name)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if p.Env == nil {
		p.Env = os.Environ()
	}
	t := &Timed{program: p, path: path}
	if t.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if t.stderr, err = os.CreateTemp("", "stderr"); err != nil {
		t.null.Close()
		return nil, err
	}
	return t, os.Remove(t.stderr.Name())
}

// Close gives the streams back.
func (t *Timed) Close() {
	t.null.Close()
	t.stderr.Close()
}

// Run runs the program once, from before its fork until it was waited for.
// When ctx ends, it is told so with SIGTERM. Errors: *Error.
func (t *Timed) Run(ctx context.Context) (time.Duration, error) {
	if err := errors.Join(ctx.Err(), t.stderr.Truncate(0)); err != nil {
		return 0, err
	}
	if _, err := t.stderr.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	attr := &os.ProcAttr{Dir: t.program.Dir, Env: t.program.Env, Files: []*os.File{t.null, t.null, t.stderr}}
	if as := t.program.As; as != nil {
		attr.Sys = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(as.UID), Gid: uint32(as.GID)}}
	}
	argv := append([]string{t.program.Name}, t.program.Args...)
	began := time.Now()
	p, err := os.StartProcess(t.path, argv, attr)
	if err != nil {
		return 0, &Error{Name: t.program.Name, Args: t.program.Args, Code: -1, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { p.Signal(syscall.SIGTERM) }) //nolint:errcheck // it may have ended
	st, err := p.Wait()
	took := time.Since(began)
	stop()
	if err == nil && st.Success() {
		return took, nil
	}
	return took, t.failure(ctx, st, err)
}

func (t *Timed) failure(ctx context.Context, st *os.ProcessState, err error) error {
	e := &Error{Name: t.program.Name, Args: t.program.Args, Code: -1, Err: err}
	said := &head{max: 2048}
	if _, serr := t.stderr.Seek(0, io.SeekStart); serr == nil {
		_, _ = io.Copy(said, t.stderr) // a part of it says more than nothing
	}
	e.Stderr = said.lines(5)
	if st != nil {
		e.Code = st.ExitCode()
	}
	if err == nil {
		e.Err = errors.New("exit status " + strconv.Itoa(e.Code))
	}
	if ctx.Err() != nil {
		e.Err = ctx.Err()
	}
	return e
}
