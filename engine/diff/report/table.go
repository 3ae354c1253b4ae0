// Package report writes the changes between two trees as a table for a terminal and as JSON for programs.
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

// A Row is a line of a table of changes: one change, or both changes of a rename.
type Row struct {
	// Change is the change; of a rename, the added one.
	diff.Change
	// From is the old path of a rename, else "".
	From string
	what string
	grew snapshot.Bytes
	// paths is the number of rows that [Fold] has put into this one, and whole is set for an
	// added or deleted directory with everything in it.
	paths int
	whole bool
}

// Rows returns a row of a table for each change. The two changes of a rename share one at the new path. An
// unchanged node that moved along with its directory has none.
func Rows(changes []diff.Change, renames []diff.Rename) []Row {
	if len(renames) == 0 {
		rows := make([]Row, len(changes))
		for i, c := range changes {
			rows[i] = Row{Change: c, what: what(c), grew: c.SizeDelta()}
		}
		return rows
	}
	ends := make(map[string]*diff.Rename, 2*len(renames))
	for i := range renames {
		ends[renames[i].From], ends[renames[i].To] = &renames[i], &renames[i]
	}
	old := make(map[string]*diff.Node, len(renames))
	for _, c := range changes {
		if ends[c.Path] != nil && c.Old != nil {
			old[c.Path] = c.Old
		}
	}
	var rows []Row
	for _, c := range changes {
		switch r := ends[c.Path]; {
		case r == nil:
			rows = append(rows, Row{Change: c, what: what(c), grew: c.SizeDelta()})
		case c.Path == r.To:
			if row := moved(c, r, old[r.From]); row.what != "" || !along(r, ends) {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// moved returns the row of a table of changes for the rename r: c is the added change, old the node at the
// old path.
func moved(c diff.Change, r *diff.Rename, old *diff.Node) Row {
	row := Row{Change: c, From: r.From}
	differs := r.Differs(old, c.New)
	if differs != 0 {
		row.what = differs.String()
	}
	if differs&diff.Content != 0 && r.Similarity > 0 {
		row.what += fmt.Sprintf(" (%d%% the same)", r.Similarity)
	}
	if c.New.Mode.IsRegular() {
		row.grew = snapshot.Bytes(c.New.Size - old.Size)
	}
	return row
}

// along reports whether the parent directory of a renamed path was renamed in the same way, so that the path
// needs no row of its own. ends holds the renames by both paths.
func along(r *diff.Rename, ends map[string]*diff.Rename) bool {
	from, name, nested := cutLast(r.From)
	to, last, _ := cutLast(r.To)
	dir := ends[to]
	return nested && name == last && dir != nil && dir.Dir && dir.From == from && dir.To == to
}

func cutLast(path string) (dir, name string, nested bool) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:], i > 0
}

// Table writes the table of changes to w, a line for each row: the letter of its kind, R for a rename; the
// type or the differing aspects; by how much a file grew; and the path. Errors: those of w.
func Table(w io.Writer, rows []Row) error {
	wide := 0
	for _, r := range rows {
		wide = max(wide, len(r.said()))
	}
	out := bufio.NewWriter(w)
	for _, r := range rows {
		letter, path := r.Kind.Letter(), Printable(r.Path)+arrow(r.Change)
		switch {
		case r.paths > 0:
			path = Printable(r.Path)
			if r.From != "" {
				letter = "R"
			}
		case r.From != "":
			letter, path = "R", Printable(r.From)+" -> "+Printable(r.Path)
		}
		fmt.Fprintf(out, "%s  %-*s  %10s  %s\n", letter, wide, r.said(), delta(r.grew), path)
	}
	return out.Flush()
}

// said returns the second column of a row of the table of changes: the aspects in which the path differs, or
// its type.
func (r Row) said() string {
	said := r.what
	if said == "" {
		said = diff.TypeName(r.New.Mode)
	}
	if n := r.Unlisted(); n > 0 {
		said += fmt.Sprintf(" (%d entries)", n)
	}
	return said
}

// what returns in words the type of an added or deleted path, or the aspects in which a modified one differs.
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

// arrow returns the suffix that a path has in the table of changes: the target of a symbolic link, or the
// first name of a hard link, else "".
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

// Printable returns a file name that is safe on a terminal. A name is put in double quotes with Go escapes if
// it contains unprintable characters, invalid UTF-8, or anything that could be mistaken for such quoting. So
// no name moves the cursor, changes a colour, or reverses the writing direction.
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
