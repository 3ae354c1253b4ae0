package errs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Hinter is an error of another type than [*Error] that suggests commands which mend the failure. The
// program prints them after the error.
type Hinter interface{ Hints() []string }

// An ExitCoder is an error that itself says with which exit status the program ends. The status of its kind
// then does not count.
type ExitCoder interface{ ExitCode() int }

// A Status is a kind of failure for which the program has a special exit status. A package declares one if
// none of the kinds in package errs fits. An [*Error] carries it as its Kind, so that [ExitCode] finds the
// exit status.
type Status struct {
	text string
	code int
}

// NewStatus returns a kind of failure with this text, for which the program exits with code.
func NewStatus(code int, text string) error { return &Status{text: text, code: code} }

func (s *Status) Error() string { return s.text }

// ExitCode returns the exit status with which the program ends after a failure of this kind.
func (s *Status) ExitCode() int { return s.code }

// HintsOf returns the suggested commands of the outermost error that has some, among err and the errors it
// wraps.
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

// HasOp reports whether err is or wraps an [*Error] with an operation. One without an operation is only a
// cause: a helper of a backend returns it, and the caller adds the operation.
func HasOp(err error) bool {
	return walk(err, func(err error) bool {
		e, ok := err.(*Error) //nolint:errorlint // walk unwraps
		return ok && e.Op != ""
	})
}

// DetailsOf returns the Details, data for programs, of the outermost [*Error] that has some, among err and
// the errors it wraps; nil if none has.
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

// walk calls found for err and the errors that it wraps, outermost first, until found returns true, and
// reports whether it did.
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

// ExitCode returns the exit status of the outermost [ExitCoder] among err and the errors it wraps; ok is
// false if there is none.
func ExitCode(err error) (code int, ok bool) {
	var c ExitCoder
	if errors.As(err, &c) {
		return c.ExitCode(), true
	}
	return 0, false
}

// Quoted returns arg in the form in which a person can paste it into a shell as one argument: in quotes if a
// shell would interpret a character of it, and with escapes for what a terminal would interpret. Hints quote
// paths so. A program that builds a command for any shell uses [ShellQuoted].
func Quoted(arg string) string {
	if !strings.ContainsFunc(arg, unprintable) {
		return ShellQuoted(arg)
	}
	// bash(1), QUOTING: also in zsh and ksh. A shell that does not know it, such as dash, reads a wrong name: no quote
	// and no backslash is in it, so that it does not leave the quotes.
	var b strings.Builder
	b.WriteString("$'")
	for rest := arg; rest != ""; {
		c, size := utf8.DecodeRuneInString(rest)
		switch {
		case c == '\'' || c == '\\' || unprintable(c):
			for _, one := range []byte(rest[:size]) {
				fmt.Fprintf(&b, "\\%03o", one)
			}
		default:
			b.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	b.WriteString("'")
	return b.String()
}

// unprintable reports whether a character is none that everybody sees: a control character, one that hides or
// turns text, or a byte that is not UTF-8.
func unprintable(c rune) bool { return !strconv.IsPrint(c) || c == utf8.RuneError }

// ShellQuoted returns arg in the form in which every POSIX shell reads it as one argument.
func ShellQuoted(arg string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%=:,"
	if arg != "" && strings.Trim(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
