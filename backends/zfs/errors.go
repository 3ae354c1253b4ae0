//go:build linux

package zfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
)

// A problem is an error with a text of this package, or of zfs(8).
type problem struct {
	kind      error
	path, why string
	hints     []string
}

func (p *problem) Error() string { return p.why }
func (p *problem) Unwrap() error { return p.kind }

func notFound(why string) error { return &problem{kind: errs.ErrNotFound, why: why} }
func corrupt(why string) error  { return &problem{kind: errs.ErrCorrupt, why: why} }

// absent returns notFound for a path that does not exist, and err otherwise.
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

// fail returns err as an error of the contract.
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

// kindOf returns the sentinel that an error stands for. An unknown error is ErrCorrupt.
func kindOf(err error) error {
	var p *problem
	if errors.As(err, &p) {
		_ = errors.As(p.kind, &p) // the kind may be one of the problems that zfsCmd returns
		return p.kind
	}
	return errs.KindOfFile(err)
}
