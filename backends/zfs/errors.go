//go:build linux

package zfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

func notFound(why string) error { return &errs.Error{Kind: errs.ErrNotFound, Err: errors.New(why)} }
func corrupt(why string) error  { return &errs.Error{Kind: errs.ErrCorrupt, Err: errors.New(why)} }

// notFoundIfMissing returns ErrNotFound, for a snapshot or fork that is missing, if err means that a path
// does not exist. Other errors it returns as they are.
func notFoundIfMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return notFound("not found")
	}
	return err
}

func noProgram(err error) error {
	return &errs.Error{Kind: errs.ErrNotSupported, Err: err, Hints: errs.HintsOf(err)}
}

// fail wraps err in an [*errs.Error] with the operation op, the id of a snapshot or fork, and a path. A nil
// err stays nil.
func fail(op, id string, err error) error {
	if err == nil || errs.HasOp(err) {
		return err
	}
	e := &errs.Error{Op: op, Component: name, Subject: id, Kind: kindOf(err), Err: err}
	var p *errs.Error
	var at *os.PathError
	switch {
	case errors.As(err, &p):
		e.Path, e.Hints, e.Err = p.Path, p.Hints, p.Err
	case errors.As(err, &at):
		e.Path, e.Err = at.Path, at.Err
	}
	if len(e.Hints) == 0 && errors.Is(e.Kind, errs.ErrNoSpace) {
		e.Hints = []string{"snapfs gc", "zfs list -o space"}
	}
	return e
}

// kindOf returns the error kind of package errs for a system error, such as ErrNotFound for ENOENT;
// ErrCorrupt for an unknown error.
func kindOf(err error) error {
	var p *errs.Error
	if errors.As(err, &p) {
		_ = errors.As(p.Kind, &p) // errNoParent and errNoTag have a kind of their own
		return p.Kind
	}
	return errs.KindOfFile(err)
}
