//go:build linux

package zfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
)

// A problem is a failure in words of our own, or of zfs(8).
type problem struct {
	kind      error
	path, why string
	hints     []string
}

func (p *problem) Error() string { return p.why }
func (p *problem) Unwrap() error { return p.kind }

func notFound(why string) error { return &problem{kind: errs.ErrNotFound, why: why} }
func corrupt(why string) error  { return &problem{kind: errs.ErrCorrupt, why: why} }

// absent: what is not there is not found, without more words.
func absent(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return notFound("not found")
	}
	return err
}

func noProgram(err error) error {
	p := &problem{kind: errs.ErrNotSupported, why: err.Error()}
	var missing *run.MissingError
	if errors.As(err, &missing) && missing.Fix != "" {
		p.hints = []string{missing.Fix}
	}
	return p
}

// fail makes err the contract's error.
func fail(op, id string, err error) error {
	if err == nil {
		return nil
	}
	var done *errs.Error
	if errors.As(err, &done) {
		return err
	}
	e := &errs.Error{Op: op, Component: name, Subject: id, Kind: kindOf(err), Err: err}
	var p *problem
	var at *os.PathError
	switch {
	case errors.As(err, &p):
		e.Path, e.Hints, e.Err = p.path, p.hints, p
	case errors.As(err, &at):
		e.Path, e.Err = at.Path, at.Err
	}
	if len(e.Hints) == 0 && errors.Is(e.Kind, errs.ErrNoSpace) {
		e.Hints = []string{"snapfs gc", "zfs list -o space"}
	}
	return e
}

// kindOf finds the sentinel that an error amounts to. An error that nobody
// foresaw means that the data is not to be trusted.
func kindOf(err error) error {
	var p *problem
	if errors.As(err, &p) {
		_ = errors.As(p.kind, &p) // it may be one of those that the door tells apart
		return p.kind
	}
	return errs.KindOfFile(err)
}
