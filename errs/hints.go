package errs

import "errors"

// Hinter is an error of another type that has hints. An [*Error] keeps its own
// in a field.
type Hinter interface{ Hints() []string }

// ExitCoder is an error that ends the program with a status of its own, whatever
// its kind.
type ExitCoder interface{ ExitCode() int }

// A Status is a kind of failure that has an exit status of its own. A package
// declares one where no kind of this package says the same.
type Status struct {
	text string
	code int
}

// NewStatus returns a kind that prints as text.
func NewStatus(code int, text string) error { return &Status{text: text, code: code} }

func (s *Status) Error() string { return s.text }

// ExitCode returns the exit status of a program that ends with this failure.
func (s *Status) ExitCode() int { return s.code }

// HintsOf returns the hints of the outermost error in err's tree that has any.
func HintsOf(err error) []string {
	if e, ok := err.(*Error); ok && len(e.Hints) > 0 { //nolint:errorlint // this walks the tree itself
		return e.Hints
	}
	if h, ok := err.(Hinter); ok && len(h.Hints()) > 0 {
		return h.Hints()
	}
	switch w := err.(type) { //nolint:errorlint // this walks the tree itself
	case interface{ Unwrap() error }:
		return HintsOf(w.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range w.Unwrap() {
			if hints := HintsOf(inner); len(hints) > 0 {
				return hints
			}
		}
	}
	return nil
}

// ExitCode returns the exit status that an error in err's tree asks for, and
// whether one does.
func ExitCode(err error) (code int, ok bool) {
	var c ExitCoder
	if errors.As(err, &c) {
		return c.ExitCode(), true
	}
	return 0, false
}
