// Package patch writes changes as text that git, and people, can read.
//
// It is a package of its own because line comparison, compression and hashing
// cost start-up time that only a command which prints a patch should pay.
package patch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
)

// The bounds of what a patch shows.
const (
	// TextMax: a larger file is shown as binary, compressed, not line by line.
	TextMax = 8 << 20
	// FileMax: a larger file is only named, in the header: git refuses patches
	// that hold it.
	FileMax = 512 << 20
)

// Options say how a patch is written. The zero value will do.
type Options struct {
	// Renames, from [diff.Renames], are written as such where git has renames:
	// files and symbolic links. All else is deleted and added.
	Renames []diff.Rename
}

// Write writes changes, which must be in order, as a patch of the kind that
// `git diff --binary --full-index` prints: `git apply` on a copy of the old
// tree gives the new one, as far as git can hold it (regular files, the
// owner's right to execute, symbolic links). So does patch(1), of text. The
// header, which they skip, names what they cannot hold and what differs there.
// Times are named only where nothing else differs.
//
// old and new are the trees that were compared. Cost: reads each changed file of up
// to FileMax once, a binary one twice. Memory: two files of TextMax.
// Errors: *errs.Error for a file that cannot be read; those of w.
func Write(ctx context.Context, w io.Writer, old, new *os.File, changes []diff.Change, o Options) error {
	out := bufio.NewWriterSize(w, 64<<10)
	writeNotes(out, changes)
	p := printer{source: source{ctx: ctx, root: [2]*os.File{old, new}}, out: out, moves: movesOf(changes, o.Renames)}
	for _, c := range changes {
		if !pathFits(c.Path) {
			continue
		}
		if err := p.change(c); err != nil {
			return err
		}
	}
	return out.Flush()
}

type printer struct {
	source
	out *bufio.Writer
	moves
}

// moves are the renames that git has a word for.
type moves struct {
	to   map[string]move // by the path that a file has now
	from map[string]bool
}

type move struct {
	diff.Rename
	old *diff.Node
}

func movesOf(changes []diff.Change, renames []diff.Rename) moves {
	m := moves{map[string]move{}, map[string]bool{}}
	if len(renames) == 0 {
		return m
	}
	sides := make(map[string]diff.Change, len(changes))
	for _, c := range changes {
		if c.Kind != diff.Modified {
			sides[c.Path] = c
		}
	}
	for _, r := range renames {
		old, new := sides[r.From].Old, sides[r.To].New
		if fits(old) && fits(new) && pathFits(r.From) && pathFits(r.To) {
			m.to[r.To], m.from[r.From] = move{r, old}, true
		}
	}
	return m
}

// change writes none, one or two file patches: git has no word for a change of
// type, so that is a deletion and an addition.
func (p *printer) change(c diff.Change) error {
	old, new := fits(c.Old), fits(c.New)
	if m, ok := p.to[c.Path]; ok {
		return p.file(ends{m.From, c.Path, m.old, c.New}, &m.Rename)
	}
	switch {
	case p.from[c.Path]:
		return nil
	case old && new && c.What&diff.Type == 0:
		if c.What&(diff.Content|diff.Target) == 0 && gitMode(c.Old) == gitMode(c.New) {
			return nil
		}
		return p.file(ends{c.Path, c.Path, c.Old, c.New}, nil)
	case old && (c.New == nil || c.What&diff.Type != 0):
		if err := p.file(ends{c.Path, c.Path, c.Old, nil}, nil); err != nil {
			return err
		}
	}
	if new && (c.Old == nil || c.What&diff.Type != 0) {
		return p.file(ends{c.Path, c.Path, nil, c.New}, nil)
	}
	return nil
}

// ends are the two sides of a file's patch; a nil node is a file that is not
// there.
type ends struct {
	from, to string
	old, new *diff.Node
}

// file writes the patch of one file; r is nil where it has not moved.
func (p *printer) file(e ends, r *diff.Rename) error {
	a, err := p.load(0, e.from, e.old)
	if err != nil {
		return err
	}
	b, err := p.load(1, e.to, e.new)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "diff --git %s %s\n", quote("a/"+e.from), quote("b/"+e.to))
	mode := ""
	switch {
	case e.old == nil:
		fmt.Fprintf(p.out, "new file mode %o\n", gitMode(e.new))
	case e.new == nil:
		fmt.Fprintf(p.out, "deleted file mode %o\n", gitMode(e.old))
	case gitMode(e.old) != gitMode(e.new):
		fmt.Fprintf(p.out, "old mode %o\nnew mode %o\n", gitMode(e.old), gitMode(e.new))
	default:
		mode = fmt.Sprintf(" %o", gitMode(e.old))
	}
	if r != nil {
		fmt.Fprintf(p.out, "similarity index %d%%\nrename from %s\nrename to %s\n", percent(a, b, r), quote(e.from), quote(e.to))
	}
	if a.id == b.id {
		return nil
	}
	fmt.Fprintf(p.out, "index %s..%s%s\n", a.id, b.id, mode)
	switch {
	case a.binary || b.binary:
		return p.binary(e, a, b)
	case len(a.text)+len(b.text) > 0:
		fmt.Fprintf(p.out, "--- %s\n+++ %s\n", label("a/", e.from, e.old), label("b/", e.to, e.new))
		writeHunks(p.out, a.text, b.text)
	}
	return nil
}

// percent is what git would say of a rename: 100 where nothing differs, and only
// there.
func percent(a, b blob, r *diff.Rename) int {
	if a.id == b.id {
		return 100
	}
	return min(r.Similarity, 99)
}

// label names a side of a text patch. The tab keeps a name with a blank in it
// from being cut there, as git itself has it.
func label(prefix, path string, n *diff.Node) string {
	if n == nil {
		return "/dev/null"
	}
	name := quote(prefix + path)
	for i := range len(name) {
		if name[i] == ' ' {
			return name + "\t"
		}
	}
	return name
}

// fits reports whether git can hold a node.
func fits(n *diff.Node) bool {
	return n != nil && (n.Mode.IsRegular() && n.Size <= FileMax || n.Mode.Type() == fs.ModeSymlink)
}

func gitMode(n *diff.Node) int {
	switch {
	case n.Mode.Type() == fs.ModeSymlink:
		return 0o120000
	case n.Mode&0o100 != 0:
		return 0o100755
	}
	return 0o100644
}
