//go:build linux

package store

import (
	"io/fs"

	"github.com/snapfs/snapfs/errs"
)

// Refuse returns an error of this kind about path, with the text why and hints.
func Refuse(kind error, path, why string, hints ...string) error {
	return &fs.PathError{Op: "overlay", Path: path, Err: errs.New("", "", kind, why, hints...)}
}

// PathError adds the operation op and the path to err; nil stays nil.
func PathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
