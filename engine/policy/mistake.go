package policy

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/snapfs/snapfs/errs"
)

// A Mistake is one violation of the grammar in a profile, with its position and correction.
type Mistake struct {
	// Line and Column count from 1; columns are bytes.
	Line, Column int
	// What describes the mistake, and Mend how to correct it.
	What, Mend string
}

// An Error lists the mistakes of a profile. It matches [errs.ErrInvalid]. It is a type of its own because an
// editor wants each mistake with its position.
type Error struct {
	File     string
	Mistakes []Mistake
}

// Error returns the text for the user: a line for each mistake in the profile, at most twenty.
func (e *Error) Error() string {
	const most = 20
	var b strings.Builder
	file := e.File
	if strings.ContainsFunc(file, unicode.IsControl) { // a line break would break the list
		file = strconv.Quote(file)
	}
	for i, m := range e.Mistakes[:min(len(e.Mistakes), most)] {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s", file, m.Line, m.Column, m.What)
		if m.Mend != "" {
			b.WriteString("; " + m.Mend)
		}
	}
	if more := len(e.Mistakes) - most; more > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more", file, more)
	}
	return b.String()
}

// Is reports whether target is [errs.ErrInvalid], of which kind every error about mistakes in a profile is.
func (e *Error) Is(target error) bool { return target == errs.ErrInvalid }
