package isolate

import (
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/snapfs/snapfs/errs"
)

// closed returns the error of the operation op on a container that has ended. It matches [errs.ErrClosed].
func closed(op string) error {
	return errs.New(op, "", errs.ErrClosed, "the sandbox has ended")
}

// A CommandError is the error of a command that could not be executed in a container, such as one that does
// not exist.
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

// Is reports whether the errno of the failed command is of the given kind: [errs.ErrNotFound],
// [errs.ErrDenied], [errs.ErrNoSpace] or [errs.ErrInvalid].
func (e *CommandError) Is(kind error) bool {
	switch e.Errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return kind == errs.ErrNotFound
	case syscall.EACCES, syscall.EPERM:
		return kind == errs.ErrDenied
	case syscall.EAGAIN, syscall.ENOMEM: // the first is a limit of processes (execve(2))
		return kind == errs.ErrNoSpace
	}
	return kind == errs.ErrInvalid
}

// Unwrap returns the error number with which the kernel refused to execute the command, such as ENOENT.
func (e *CommandError) Unwrap() error { return e.Errno }

// ExitCode returns the exit status with which a shell reports such an error: 127 for a command that does not
// exist, 126 for one that cannot be executed.
func (e *CommandError) ExitCode() int {
	if e.Errno == syscall.ENOENT || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}
