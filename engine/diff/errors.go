package diff

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// op is what this package says it was doing.
const op = "comparing"

// fail gives an error its path and kind, once.
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

// unsteady says that a place was another at every look.
func unsteady(path string) error {
	return &errs.Error{Op: op, Path: path, Kind: errs.ErrBusy, Err: errors.New("it keeps changing")}
}
