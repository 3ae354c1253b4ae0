package errs

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
)

var kinds = [...]error{
	ErrNotFound, ErrExists, ErrBusy, ErrInvalid, ErrDenied, ErrReadOnly, ErrNotSupported,
	ErrNoSpace, ErrConflict, ErrDrifted, ErrCorrupt, ErrInterrupted, ErrClosed,
}

// KindNamed returns the kind of failure whose text is text, or nil. A supervisor sends the kind of its error
// to the client as this text.
func KindNamed(text string) error {
	for _, kind := range kinds {
		if kind.Error() == text {
			return kind
		}
	}
	return nil
}

// KindOf returns the kind of the failure err: that of the first [*Error] in it that has one, else a kind that
// err itself wraps, else the kind that stands for its system error. It returns nil if none is known.
func KindOf(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Kind != nil {
		return e.Kind
	}
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return lookUp(err, []meaning{
		{syscall.ENOSPC, ErrNoSpace},
		{syscall.EDQUOT, ErrNoSpace},
		{syscall.EROFS, ErrReadOnly},
		{syscall.EBUSY, ErrBusy},
		{syscall.ESTALE, ErrDrifted},
		{syscall.EOPNOTSUPP, ErrNotSupported},
		{context.Canceled, ErrInterrupted},
		{context.DeadlineExceeded, ErrInterrupted},
		{fs.ErrNotExist, ErrNotFound},
		{fs.ErrExist, ErrExists},
		{fs.ErrPermission, ErrDenied},
	})
}

// KindOfFile returns the kind of err, as [KindOf] does, for a caller that copies trees. It also knows the
// errors of single files and of an overloaded system. An unknown error is [ErrCorrupt], because the copy
// cannot be trusted.
func KindOfFile(err error) error {
	if kind := KindOf(err); kind != nil {
		return kind
	}
	if kind := lookUp(err, []meaning{
		{syscall.ENOTEMPTY, ErrExists},
		{syscall.EFBIG, ErrNoSpace},
		{syscall.ENOTDIR, ErrNotSupported},
		{syscall.ELOOP, ErrNotSupported},
		{syscall.EMLINK, ErrNotSupported},
		{syscall.EINVAL, ErrNotSupported},
		{syscall.ENAMETOOLONG, ErrNotSupported},
		{syscall.EMFILE, ErrBusy},
		{syscall.ENFILE, ErrBusy},
		{syscall.ENOMEM, ErrBusy},
	}); kind != nil {
		return kind
	}
	return ErrCorrupt
}

// A meaning is an entry of a table that maps an error of the operating system, os (such as EACCES), to a kind
// of failure, kind (such as ErrDenied).
type meaning struct{ os, kind error }

// lookUp returns the kind of failure of the first entry of table whose system error err is or wraps, or nil.
func lookUp(err error, table []meaning) error {
	for _, m := range table {
		if errors.Is(err, m.os) {
			return m.kind
		}
	}
	return nil
}
