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

// A Timed is a program that is prepared once and run many times for measuring. Its streams are
// open files, so that only fork, exec and wait are between the clock and the program.
type Timed struct {
	program Program
	path    string
	null    *os.File
	stderr  *os.File
}

// Prepare looks up a program and opens its streams for timed runs. Its standard input is empty; its output is
// discarded, except that standard error becomes part of an error. Errors: ErrMissing.
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

// Close closes the streams of a program that was prepared for timed runs, after the last run.
func (t *Timed) Close() {
	t.null.Close()
	t.stderr.Close()
}

// Run runs the prepared program once and returns the time from before its fork until its end was reported by
// wait. When ctx ends, the program gets SIGTERM. Errors: *Error.
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
		return 0, &Error{Name: t.program.Name, Code: -1, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { p.Signal(syscall.SIGTERM) }) //nolint:errcheck // the program may have ended
	st, err := p.Wait()
	took := time.Since(began)
	stop()
	if err == nil && st.Success() {
		return took, nil
	}
	return took, t.failure(ctx, st, err)
}

func (t *Timed) failure(ctx context.Context, st *os.ProcessState, err error) error {
	e := &Error{Name: t.program.Name, Code: -1, Err: err}
	said := &head{max: 2048}
	if _, serr := t.stderr.Seek(0, io.SeekStart); serr == nil {
		_, _ = io.Copy(said, t.stderr) // a part of it is better than nothing
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
