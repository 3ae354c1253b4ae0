// Package pathlist formats many paths, each with its reason, as one text, makes a path safe to print on a
// terminal, matches paths with patterns and looks them up in a sorted list.
package pathlist

import (
	"strconv"
	"strings"
)

// A List is a list of paths, each with a reason, such as that of a conflict, to be printed in one error. The
// zero value is an empty list.
type List struct {
	// Paths are in the order in which they were added.
	Paths []string
	// Why holds the reason for each path, to be printed after "PATH: ".
	Why map[string]string
}

// String returns, as text for a message, the first twenty paths of the list with their reasons, and the
// number of the others.
func (l *List) String() string {
	const most = 20
	var b strings.Builder
	for i, path := range l.Paths[:min(len(l.Paths), most)] {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(Printable(path) + ": " + l.Why[path])
	}
	if more := len(l.Paths) - most; more > 0 {
		b.WriteString("; and " + strconv.Itoa(more) + " more")
	}
	return b.String()
}

// Add adds to the list a path with the reason why it is there. If the list has the path already, its first
// reason stays.
func (l *List) Add(path, why string) {
	if l.Why == nil {
		l.Why = map[string]string{}
	}
	if _, ok := l.Why[path]; !ok {
		l.Paths = append(l.Paths, path)
		l.Why[path] = why
	}
}

// Printable returns a path in a form that is safe to print: quoted if it contains unprintable
// characters or ones that a terminal would interpret.
func Printable(path string) string {
	for _, c := range path {
		if !strconv.IsPrint(c) || c == '\uFFFD' {
			return strconv.Quote(path)
		}
	}
	return path
}
