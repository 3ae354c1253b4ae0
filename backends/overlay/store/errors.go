//go:build linux

package store

import (
	"errors"
	"io/fs"

	"github.com/snapfs/snapfs/errs"
)

// KindOf returns the kind of a reason, or the kind that an error of the system stands for.
func KindOf(err error) error {
	var r *Reason
	if errors.As(err, &r) {
		return r.kind
	}
	return errs.KindOfFile(err)
}

// Refuse returns an error of this kind with a text of this package.
func Refuse(kind error, path, why string, hints ...string) error {
	return &fs.PathError{Op: "overlay", Path: path, Err: &Reason{kind, why, hints}}
}

// A Reason is a cause with a kind, a text of this backend, and hints.
type Reason struct {
	kind  error
	why   string
	Hints []string
}

func (r *Reason) Error() string { return r.why }
func (r *Reason) Unwrap() error { return r.kind }

// PathError returns err with an operation and a path, or nil if err is nil.
func PathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
