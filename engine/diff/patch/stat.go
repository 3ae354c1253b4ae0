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

// A count is what a change adds and removes.
type count struct {
	path string
	// added and removed are lines, of text.
	added, removed int
	// binary: the sizes, in bytes, say what lines cannot.
	binary           bool
	oldSize, newSize int64
}

// counts counts the lines of every change of a file's content, in order.
func (s *source) counts(changes []diff.Change) ([]count, error) {
	var list []count
	for _, c := range changes {
		if !fits(c.Old) && !fits(c.New) || c.Kind == diff.Modified && c.What&(diff.Content|diff.Target|diff.Type) == 0 {
			continue
		}
		n, err := s.count(c)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

func (s *source) count(c diff.Change) (count, error) {
	var side [2]blob
	for i, n := range [2]*diff.Node{c.Old, c.New} {
		if !fits(n) {
			continue
		}
		var err error
		if side[i], err = s.load(i, c.Path, n); err != nil {
			return count{}, err
		}
	}
	n := count{path: c.Path, oldSize: side[0].size, newSize: side[1].size}
	if n.binary = side[0].binary || side[1].binary; !n.binary {
		n.added, n.removed = countLines(side[0].text, side[1].text)
	}
	return n, nil
}

// Stat writes a line a changed file with the lines it gained and lost, as `git
// diff --stat` does, within width columns, and a line for the whole. Errors:
// those of [Write].
func Stat(ctx context.Context, w io.Writer, old, new *os.File, changes []diff.Change, width int) error {
	src := source{ctx: ctx, root: [2]*os.File{old, new}}
	counts, err := src.counts(changes)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	wide, most := 0, 1
	for _, c := range counts {
		wide, most = max(wide, len([]rune(report.Printable(c.path)))), max(most, c.added+c.removed)
	}
	room := max(width-wide-12, 10)
	added, removed := 0, 0
	for _, c := range counts {
		added, removed = added+c.added, removed+c.removed
		fmt.Fprintf(out, " %-*s | %s\n", wide, report.Printable(c.path), c.bar(most, room))
	}
	fmt.Fprintf(out, " %s changed, %s(+), %s(-)\n",
		plural(len(counts), "file"), plural(added, "insertion"), plural(removed, "deletion"))
	return out.Flush()
}

// bar draws a count; where the largest has no room, all shrink in proportion,
// but none that is not zero disappears.
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
