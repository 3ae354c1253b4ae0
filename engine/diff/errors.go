package diff

import (
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
	kind := snapshot.KindOf(err)
	switch {
	case kind != nil:
		return kind
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return snapshot.ErrBusy
	case errors.Is(err, unix.ENOSYS):
		return snapshot.ErrNotSupported
	}
	return snapshot.ErrCorrupt // EIO and its like
}

// unsteady says that a place was another at every look.
func unsteady(path string) error {
	return &snapshot.Error{Op: op, Path: path, Kind: snapshot.ErrBusy, Err: errors.New("it keeps changing")}
}
