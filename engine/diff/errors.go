package diff

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// op is the name of the operation in the errors of a comparison of two trees ([errs.Error.Op]).
const op = "comparing"

// fail returns err as an error of the comparison of two trees with path and a kind, unless it has them
// already; nil for nil.
func fail(path string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &errs.Error{Op: op, Path: path, Kind: kindOf(err), Err: err}
}

func kindOf(err error) error {
	kind := errs.KindOf(err)
	switch {
	case kind != nil:
		return kind
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return errs.ErrBusy
	case errors.Is(err, unix.ENOSYS):
		return errs.ErrNotSupported
	}
	return errs.ErrCorrupt // EIO and its like
}

// keepsChanging returns the error for a path of a tree that other processes changed during every try to
// compare it.
func keepsChanging(path string) error {
	return &errs.Error{Op: op, Path: path, Kind: errs.ErrBusy, Err: errors.New("the path keeps changing")}
}
