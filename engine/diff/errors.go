package diff

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// op is what this package says it was doing.
const op = "comparing"

// fail gives an error its path and kind, once.
func fail(path string, err error) error {
	var done *snapshot.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &snapshot.Error{Op: op, Path: path, Kind: kindOf(err), Err: err}
}

func kindOf(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return snapshot.ErrInterrupted
	case denied(err):
		return snapshot.ErrDenied
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ESTALE):
		return snapshot.ErrNotFound
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		return snapshot.ErrNotSupported
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return snapshot.ErrBusy
	}
	return snapshot.ErrCorrupt
}

// unsteady says that a place was another at every look.
func unsteady(path string) error {
	return &snapshot.Error{Op: op, Path: path, Kind: snapshot.ErrBusy, Err: errors.New("it keeps changing")}
}
