//go:build linux

package overlay

import (
	"errors"
	"io/fs"

	"github.com/snapfs/snapfs/errs"
)

// kindOf returns the kind of a reason, or the kind that an error of the system stands for.
func kindOf(err error) error {
	var r *reason
	if errors.As(err, &r) {
		return r.kind
	}
	return errs.KindOfFile(err)
}

// because returns an error of this kind with a text of this package.
func because(kind error, path, why string, hints ...string) error {
	return &fs.PathError{Op: "overlay", Path: path, Err: &reason{kind, why, hints}}
}

type reason struct {
	kind  error
	why   string
	hints []string
}

func (r *reason) Error() string { return r.why }
func (r *reason) Unwrap() error { return r.kind }

func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
