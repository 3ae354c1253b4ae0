package isolate

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// Kinds of failure, for errors.Is.
var (
	// ErrInvalid: the Spec or Command makes no sense.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: a path of the host, or the command, does not exist.
	ErrNotFound = errors.New("not found")
	// ErrNotSupported: this kernel or its configuration cannot do it.
	ErrNotSupported = errors.New("not supported")
	// ErrDenied: this user may not do it.
	ErrDenied = errors.New("permission denied")
	// ErrBusy: a path is in use.
	ErrBusy = errors.New("in use")
	// ErrNoSpace: no memory, descriptors, processes or namespaces are left.
	ErrNoSpace = errors.New("no space left")
	// ErrClosed: the container has ended.
	ErrClosed = errors.New("the sandbox has ended")
	// ErrInterrupted: the context ended first.
	ErrInterrupted = errors.New("interrupted")
)

// Error is a failure with its place. It prints as "op: path: cause" and
// unwraps to both its Kind and its Err.
type Error struct {
	// Op is what was being done, as a gerund: "mounting /proc".
	Op string
	// Path is the file concerned, or "".
	Path string
	// Kind is one of the sentinels above; Err the cause, nil where Kind says all.
	Kind, Err error
	// Hints are commands that mend it, best first.
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

// CommandError reports that a command could not be executed.
type CommandError struct {
	// Path is the command as the caller gave it.
	Path string
	// Errno is the cause: ENOENT or ENOTDIR for a command that does not exist.
	Errno syscall.Errno
}

func (e *CommandError) Error() string {
	name := e.Path
	if strings.ContainsFunc(name, unicode.IsControl) {
		name = strconv.Quote(name)
	}
	switch {
	case e.ExitCode() == 127 && strings.Contains(name, "/"): // execve(2) returns the same error for both
		return name + ": command not found, or its interpreter is not there"
	case e.ExitCode() == 127:
		return name + ": command not found"
	}
	return name + ": " + e.Errno.Error()
}

// Is reports whether kind is [ErrNotFound], [ErrDenied], [ErrNoSpace] or [ErrInvalid], whichever fits the
// errno.
func (e *CommandError) Is(kind error) bool {
	switch e.Errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return kind == ErrNotFound
	case syscall.EACCES, syscall.EPERM:
		return kind == ErrDenied
	case syscall.EAGAIN, syscall.ENOMEM: // the first is a limit of processes (execve(2))
		return kind == ErrNoSpace
	}
	return kind == ErrInvalid
}

// Unwrap returns the errno.
func (e *CommandError) Unwrap() error { return e.Errno }

// ExitCode returns the status of a shell: 127 for a command that does not exist, 126 for one that cannot be
// executed.
func (e *CommandError) ExitCode() int {
	if e.Errno == syscall.ENOENT || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}

// kindOf returns the kind of a system call's error.
func kindOf(errno syscall.Errno) error {
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return ErrNotFound
	case syscall.EPERM, syscall.EACCES:
		return ErrDenied
	case syscall.EBUSY:
		return ErrBusy
	case syscall.ENOSPC, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN:
		return ErrNoSpace
	}
	return ErrNotSupported
}
