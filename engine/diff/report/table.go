// Package report writes changes for a terminal and for programs.
package report

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Table writes a line a change: the letter of its kind, what it is or what
// differs, by how much a file grew, and the path. Errors: those of w.
func Table(w io.Writer, changes []diff.Change) error {
	wide := 0
	for _, c := range changes {
		wide = max(wide, len(what(c)))
	}
	out := bufio.NewWriter(w)
	for _, c := range changes {
		fmt.Fprintf(out, "%s  %-*s  %10s  %s\n", c.Kind.Letter(), wide, what(c), delta(c.SizeDelta()), Printable(c.Path)+arrow(c))
	}
	return out.Flush()
}

// what is the type of a path that came or went, and else what differs.
func what(c diff.Change) string {
	switch {
	case c.Kind == diff.Added:
		return diff.TypeName(c.New.Mode)
	case c.Kind == diff.Deleted:
		return diff.TypeName(c.Old.Mode)
	case c.What&diff.Type != 0:
		return diff.TypeName(c.Old.Mode) + " to " + diff.TypeName(c.New.Mode)
	}
	return c.What.String()
}

// arrow is what a path points to, or is a link of.
func arrow(c diff.Change) string {
	switch n := c.New; {
	case n == nil:
	case n.Target != "":
		return " -> " + Printable(n.Target)
	case n.LinkOf != "":
		return " = " + Printable(n.LinkOf)
	}
	return ""
}

func delta(n snapshot.Bytes) string {
	switch {
	case n > 0:
		return "+" + n.String()
	case n < 0:
		return "-" + (-n).String()
	}
	return ""
}

// Printable gives a name as a terminal may have it: in double quotes with the
// escapes of Go where it holds anything that is not printed, that is not
// UTF-8, or that could be taken for such quoting. So no name moves the cursor,
// changes a colour, or reverses the direction of writing.
func Printable(name string) string {
	plain := utf8.ValidString(name) && name != "" && name[0] != ' ' && name[len(name)-1] != ' ' &&
		!strings.ContainsAny(name, `"\`) && !strings.Contains(name, " -> ") && !strings.Contains(name, " = ")
	for _, r := range name {
		plain = plain && strconv.IsPrint(r)
	}
	if plain {
		return name
	}
	return strconv.Quote(name)
}
