package patch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/report"
)

// A count holds the numbers of lines that the change of one file adds and removes, for the table that [Stat]
// writes.
type count struct {
	path string
	// from is the old path of a renamed file, else "".
	from string
	// added and removed count lines of text.
	added, removed int
	// binary is set for a file that is not text, of which only the sizes in bytes are known.
	binary           bool
	oldSize, newSize int64
}

// counts counts the added and removed lines of every changed or renamed file that git can represent, in
// order.
func (s *source) counts(changes []diff.Change, renames []diff.Rename) ([]count, error) {
	moves := movesOf(changes, renames)
	var list []count
	for _, c := range changes {
		e := ends{c.Path, c.Path, c.Old, c.New}
		m, moved := moves.to[c.Path]
		if moved {
			e.from, e.old = m.From, m.old
		}
		if moves.from[c.Path] || !fits(e.old) && !fits(e.new) || c.Kind == diff.Modified && c.What&(diff.Content|diff.Target|diff.Type) == 0 {
			continue
		}
		n, err := s.count(e)
		if err != nil {
			return nil, err
		}
		if moved {
			n.from = m.From
		}
		list = append(list, n)
	}
	return list, nil
}

func (s *source) count(e ends) (n count, err error) {
	var old, new blob
	if fits(e.old) {
		if old, err = s.load(0, e.from, e.old); err != nil {
			return n, err
		}
	}
	if fits(e.new) {
		if new, err = s.load(1, e.to, e.new); err != nil {
			return n, err
		}
	}
	n = count{path: e.to, oldSize: old.size, newSize: new.size}
	if n.binary = old.binary || new.binary; !n.binary {
		n.added, n.removed = countLines(old.text, new.text)
	}
	return n, nil
}

// name returns the path of the file, or both paths if it was renamed, in the form in which [Stat] shows it.
func (c count) name() string {
	if c.from != "" {
		return report.Printable(c.from) + " => " + report.Printable(c.path)
	}
	return report.Printable(c.path)
}

// Stat writes a line for each changed file with the number of lines added and removed, like
// `git diff --stat`, at most width columns wide, and a line with the totals. Errors: those of
// [Write].
func Stat(ctx context.Context, w io.Writer, old, new *os.File, changes []diff.Change, width int, renames ...diff.Rename) error {
	src := source{ctx: ctx, root: [2]*os.File{old, new}}
	counts, err := src.counts(changes, renames)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	wide, most := 0, 1
	for _, c := range counts {
		wide, most = max(wide, len([]rune(c.name()))), max(most, c.added+c.removed)
	}
	room := max(width-wide-12, 10)
	added, removed := 0, 0
	for _, c := range counts {
		added, removed = added+c.added, removed+c.removed
		fmt.Fprintf(out, " %-*s | %s\n", wide, c.name(), c.bar(most, room))
	}
	fmt.Fprintf(out, " %s changed, %s(+), %s(-)\n",
		plural(len(counts), "file"), plural(added, "insertion"), plural(removed, "deletion"))
	return out.Flush()
}

// Lines returns the number of text lines that changes add and delete in all files. Errors: those of [Write].
func Lines(ctx context.Context, old, new *os.File, changes []diff.Change, renames ...diff.Rename) (added, deleted int, err error) {
	src := source{ctx: ctx, root: [2]*os.File{old, new}}
	counts, err := src.counts(changes, renames)
	for _, c := range counts {
		added, deleted = added+c.added, deleted+c.removed
	}
	return added, deleted, err
}

// bar draws the numbers of lines as plus and minus signs. If the largest count of all files, most, does not
// fit into room columns, all are scaled down, but never to nothing.
func (c count) bar(most, room int) string {
	if c.binary {
		return fmt.Sprintf("Bin %d -> %d bytes", c.oldSize, c.newSize)
	}
	scale := func(n int) int {
		if n == 0 || most <= room {
			return n
		}
		return max(1, n*room/most)
	}
	return strings.TrimRight(fmt.Sprintf("%5d %s%s", c.added+c.removed,
		strings.Repeat("+", scale(c.added)), strings.Repeat("-", scale(c.removed))), " ")
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
