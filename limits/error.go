package limits

import (
	"cmp"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Kinds of failure, for errors.Is.
var (
	// ErrInvalid: the limits or the options make no sense.
	ErrInvalid = errors.New("invalid")
	// ErrNotSupported: this host cannot enforce the limit, for this user or at all.
	ErrNotSupported = errors.New("not supported")
	// ErrDenied: this user may not do it.
	ErrDenied = errors.New("permission denied")
	// ErrBusy: processes prevent it: they use more than the new limit, or some have not ended.
	ErrBusy = errors.New("in use")
	// ErrClosed: the group is closed.
	ErrClosed = errors.New("the group is closed")
	// ErrInterrupted: the context ended first.
	ErrInterrupted = errors.New("interrupted")
)

// Error is a failure with its place. It prints as "op: what: cause" and unwraps
// to both its Kind and its Err.
type Error struct {
	// Op is what was being done: "limiting memory".
	Op string
	// Path is the file of the kernel concerned, or "".
	Path string
	// Kind is one of the sentinels above; Err the cause, nil where Kind says all.
	Kind, Err error
	// Hints say what would have to be so, best first.
	Hints []string
}

func (e *Error) Error() string {
	text := e.Op
	if e.Path != "" {
		text += ": " + e.Path
	}
	if why := cmp.Or(e.Err, e.Kind); why != nil {
		text += ": " + why.Error()
	}
	return text
}

// Unwrap gives both the kind and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return errors.Join(e.Kind, e.Err) }

// failed returns the error for a system call on a file.
func failed(op, path string, err error) *Error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	e := &Error{Op: op, Path: path, Err: err}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		e.Kind = ErrDenied
	case errors.Is(err, unix.EBUSY), errors.Is(err, fs.ErrExist):
		e.Kind = ErrBusy
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		e.Kind = ErrNotSupported
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		e.Kind = ErrInvalid
	}
	return e
}
