package errs

import (
	"errors"
	"strings"
)

// A Hinter is an error of another type than [*Error] that has hints.
type Hinter interface{ Hints() []string }

// An ExitCoder is an error with an exit status of its own, whatever its kind.
type ExitCoder interface{ ExitCode() int }

// A Status is a kind of failure that has an exit status of its own. A package
// declares one where no kind of this package says the same. It is a type because
// the status belongs to the kind, wherever an error carries it.
type Status struct {
	text string
	code int
}

// NewStatus returns a kind of failure with this text, for which the program exits with code.
func NewStatus(code int, text string) error { return &Status{text: text, code: code} }

func (s *Status) Error() string { return s.text }

// ExitCode returns the exit status of a program that ends with this failure.
func (s *Status) ExitCode() int { return s.code }

// HintsOf returns the hints of the outermost error in err's tree that has any.
func HintsOf(err error) (hints []string) {
	walk(err, func(err error) bool {
		if e, ok := err.(*Error); ok { //nolint:errorlint // walk unwraps
			hints = e.Hints
		} else if h, ok := err.(Hinter); ok {
			hints = h.Hints()
		}
		return len(hints) > 0
	})
	return hints
}

// HasOp reports whether an [*Error] in err's tree has an Op. One without an Op is a cause: the
// caller of a backend's helper wraps it in an [*Error] with the Op.
func HasOp(err error) bool {
	return walk(err, func(err error) bool {
		e, ok := err.(*Error) //nolint:errorlint // walk unwraps
		return ok && e.Op != ""
	})
}

// DetailsOf returns the Details of the outermost [*Error] in err's tree that has some, or nil.
func DetailsOf(err error) (details any) {
	walk(err, func(err error) bool {
		e, ok := err.(*Error) //nolint:errorlint // walk unwraps
		if ok {
			details = e.Details
		}
		return details != nil
	})
	return details
}

// walk calls found for the errors of err's tree, outermost first, until found
// returns true, and reports whether it did.
func walk(err error, found func(error) bool) bool {
	if err == nil {
		return false
	}
	if found(err) {
		return true
	}
	switch w := err.(type) { //nolint:errorlint // this is what unwraps
	case interface{ Unwrap() error }:
		return walk(w.Unwrap(), found)
	case interface{ Unwrap() []error }:
		for _, inner := range w.Unwrap() {
			if walk(inner, found) {
				return true
			}
		}
	}
	return false
}

// ExitCode returns the exit status of the outermost [ExitCoder] in err's tree; ok is false if
// there is none.
func ExitCode(err error) (code int, ok bool) {
	var c ExitCoder
	if errors.As(err, &c) {
		return c.ExitCode(), true
	}
	return 0, false
}

// Quoted returns an argument as a shell reads it: in quotes if a shell would interpret a
// character of it. A path in a hint goes through it, so that a person can paste the hint.
func Quoted(arg string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%=:,"
	if arg != "" && strings.Trim(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
