package launch

import (
	"errors"
	"syscall"

	"github.com/snapfs/snapfs/errs"
)

// HostError wraps the error of a system call that the supervisor, not pid 1, made for the operation op. An
// [*errs.Error] stays as it is.
func HostError(op string, err error) error {
	var known *errs.Error
	if errors.As(err, &known) {
		return err
	}
	kind := errs.ErrNotSupported
	var errno syscall.Errno
	if errors.As(err, &errno) {
		kind = KindOf(errno)
	}
	return &errs.Error{Op: op, Kind: kind, Err: err}
}

// KindOf returns the error kind of package errs, such as ErrDenied, for the error number of a failed system
// call.
func KindOf(errno syscall.Errno) error {
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return errs.ErrNotFound
	case syscall.EPERM, syscall.EACCES:
		return errs.ErrDenied
	case syscall.EBUSY:
		return errs.ErrBusy
	case syscall.ENOSPC, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN:
		return errs.ErrNoSpace
	}
	return errs.ErrNotSupported
}
