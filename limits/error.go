package limits

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// closed returns the error of the operation op on a [Group] that was closed or whose sandbox has ended. It
// matches errs.ErrClosed.
func closed(op string) error {
	return errs.New(op, "", errs.ErrClosed, "the group is closed")
}

// failed returns the error of the operation op for err, a failed system call on the control group's file at
// path. ENOENT and EINVAL mean that the kernel has no such limit or does not accept the value.
func failed(op, path string, err error) *errs.Error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	kind := errs.KindOf(err)
	switch {
	case errors.Is(err, unix.EROFS):
		kind = errs.ErrDenied
	case errors.Is(err, fs.ErrExist):
		kind = errs.ErrBusy
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		kind = errs.ErrNotSupported
	}
	return &errs.Error{Op: op, Path: path, Kind: kind, Err: err}
}
