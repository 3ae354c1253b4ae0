//go:build linux

package store

import (
	"io/fs"

	"github.com/snapfs/snapfs/errs"
)

// Refuse returns an error of this kind for a thing that the backend cannot do with path: why is the reason as
// text, and hints are commands that help.
func Refuse(kind error, path, why string, hints ...string) error {
	return &fs.PathError{Op: "overlay", Path: path, Err: errs.New("", "", kind, why, hints...)}
}

// PathError returns err as an *fs.PathError with the operation op and the path; nil stays nil.
func PathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
