// Package errs is the one error type of snapfs: which operation failed, in which part, on
// which object, and the kind of failure.
//
// Every package returns [*Error] where a caller or a person needs the place of a failure.
// [New] makes one of a text, [Wrap] of an error of the operating system. A caller tests the
// kind with errors.Is and the sentinels below, calls [HintsOf] for commands that help and
// [ExitCode] for the exit status.
//
// The package imports the standard library only, so that every other package can use it.
package errs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Kinds of failure. A caller tests for one with errors.Is, and the exit status of the program follows from
// it.
var (
	ErrNotFound     = errors.New("not found")
	ErrExists       = errors.New("already exists")
	ErrBusy         = errors.New("in use")
	ErrInvalid      = errors.New("invalid")
	ErrDenied       = errors.New("permission denied")
	ErrReadOnly     = errors.New("read-only")
	ErrNotSupported = errors.New("not supported")
	ErrNoSpace      = errors.New("no space left")
	ErrConflict     = errors.New("conflict")
	ErrDrifted      = errors.New("drifted")
	ErrCorrupt      = errors.New("corrupt")
	ErrInterrupted  = errors.New("interrupted")
	ErrClosed       = errors.New("closed")
)

// Error is a failure that names the operation, the object and the cause; nearly all functions of snapfs
// return their errors in this type. It prints as "op subject: component: path: cause": an empty part is left
// out, and a path with control characters is quoted. It unwraps to its Kind and its Err.
type Error struct {
	// Op is the attempted action as a gerund: "forking", "mounting /proc".
	Op string
	// Component is the backend or program at fault, or "".
	Component string
	// Subject is the name of the snapshot, fork or sandbox, or "".
	Subject string
	// Path is the tree or file, or "".
	Path string
	// Kind is a sentinel of this package, or nil where none fits.
	Kind error
	// Err is the cause, or nil if Kind says enough.
	Err error
	// Hints are commands that help, best first.
	Hints []string
	// Details is what a program needs beyond the text, such as a list of conflicts, or nil. It
	// can be marshalled as JSON.
	Details any
}

func (e *Error) Error() string {
	path := e.Path
	if strings.ContainsFunc(path, unicode.IsControl) { // a line break would start a line of its own in a log
		path = strconv.Quote(path)
	}
	parts := []string{strings.TrimSpace(e.Op + " " + e.Subject), e.Component, path}
	cause := cmp.Or(e.Err, e.Kind)
	if cause == context.Canceled { //nolint:errorlint // an error that wraps it has a text of its own
		cause = ErrInterrupted
	}
	if cause != nil {
		parts = append(parts, cause.Error())
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ": ")
}

// Unwrap returns the kind of the failure and its cause, so that errors.Is and errors.As find both.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Err}, func(err error) bool { return err == nil })
}

// New returns an [*Error] for the operation op on path, with a cause given as text, and hints, commands that
// mend it. With an empty text, the kind is the cause.
func New(op, path string, kind error, text string, hints ...string) error {
	e := &Error{Op: op, Path: path, Kind: kind, Hints: hints}
	if text != "" {
		e.Err = errors.New(text)
	}
	return e
}

// With returns err as an [*Error] for the operation op on path, of the kind that [KindOf] finds for err, with
// hints, commands that mend it. A nil err stays nil.
func With(op, path string, err error, hints ...string) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Path: path, Kind: KindOf(err), Err: err, Hints: hints}
}

// Wrap returns err as an [*Error], as [With] does, unless it is or wraps one: that names its operation
// already and is returned unchanged.
func Wrap(op, path string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return With(op, path, err)
}
