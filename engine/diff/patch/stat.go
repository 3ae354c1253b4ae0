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

// A Count is what a change adds and removes.
type Count struct {
	Path string
	// Added and Removed are lines, of text.
	Added, Removed int
	// Binary: the sizes say what lines cannot.
	Binary           bool
	OldSize, NewSize int64
}

// Counts counts the lines of every change of a file's content, in order. Errors
// and cost are those of [Write].
func Counts(ctx context.Context, old, new *os.File, changes []diff.Change) ([]Count, error) {
	s := source{ctx: ctx, root: [2]*os.File{old, new}}
	var counts []Count
	for _, c := range changes {
		if !fits(c.Old) && !fits(c.New) || c.Kind == diff.Modified && c.What&(diff.Content|diff.Target|diff.Type) == 0 {
			continue
		}
		n, err := s.count(c)
		if err != nil {
			return nil, err
		}
		counts = append(counts, n)
	}
	return counts, nil
}

func (s *source) count(c diff.Change) (Count, error) {
	var side [2]blob
	for i, n := range [2]*diff.Node{c.Old, c.New} {
		if !fits(n) {
			continue
		}
		var err error
		if side[i], err = s.load(i, c.Path, n); err != nil {
			return Count{}, err
		}
	}
	n := Count{Path: c.Path, OldSize: side[0].size, NewSize: side[1].size}
	if n.Binary = side[0].binary || side[1].binary; !n.Binary {
		n.Added, n.Removed = countLines(side[0].text, side[1].text)
	}
	return n, nil
}

// Stat writes a line a changed file with the lines it gained and lost, as `git
// diff --stat` does, within width columns, and a line for the whole. Errors:
// those of [Write].
func Stat(ctx context.Context, w io.Writer, old, new *os.File, changes []diff.Change, width int) error {
	counts, err := Counts(ctx, old, new, changes)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	wide, most := 0, 1
	for _, c := range counts {
		wide, most = max(wide, len([]rune(report.Printable(c.Path)))), max(most, c.Added+c.Removed)
	}
	room := max(width-wide-12, 10)
	added, removed := 0, 0
	for _, c := range counts {
		added, removed = added+c.Added, removed+c.Removed
		fmt.Fprintf(out, " %-*s | %s\n", wide, report.Printable(c.Path), c.bar(most, room))
	}
	fmt.Fprintf(out, " %s changed, %s(+), %s(-)\n",
		plural(len(counts), "file"), plural(added, "insertion"), plural(removed, "deletion"))
	return out.Flush()
}

// bar draws a count; where the largest has no room, all shrink in proportion,
// but none that is not zero disappears.
func (c Count) bar(most, room int) string {
	if c.Binary {
		return fmt.Sprintf("Bin %d -> %d bytes", c.OldSize, c.NewSize)
	}
	scale := func(n int) int {
		if n == 0 || most <= room {
			return n
		}
		return max(1, n*room/most)
	}
	return strings.TrimRight(fmt.Sprintf("%5d %s%s", c.Added+c.Removed,
		strings.Repeat("+", scale(c.Added)), strings.Repeat("-", scale(c.Removed))), " ")
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
