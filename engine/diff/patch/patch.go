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

// Write writes changes, which must be in order, as a patch of the kind that
// `git diff --binary --full-index` prints: `git apply` on a copy of the old
// tree gives the new one, as far as git can hold it (regular files, the
// owner's right to execute, symbolic links). The header, which git ignores,
// names what it cannot hold and what differs there. Times are named only where
// nothing else differs.
//
// old and new are the trees that were compared. Memory: two files of TextMax.
// Errors: *snapshot.Error for a file that cannot be read; those of w.
func Write(ctx context.Context, w io.Writer, old, new *os.File, changes []diff.Change) error {
	out := bufio.NewWriterSize(w, 64<<10)
	writeNotes(out, changes)
	p := printer{source: source{ctx: ctx, root: [2]*os.File{old, new}}, out: out}
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
}

// change writes none, one or two file patches: git has no word for a change of
// type, so that is a deletion and an addition.
func (p *printer) change(c diff.Change) error {
	old, new := fits(c.Old), fits(c.New)
	switch {
	case old && new && c.What&diff.Type == 0:
		if c.What&(diff.Content|diff.Target) == 0 && gitMode(c.Old) == gitMode(c.New) {
			return nil
		}
		return p.file(c.Path, c.Old, c.New)
	case old && (c.New == nil || c.What&diff.Type != 0):
		if err := p.file(c.Path, c.Old, nil); err != nil {
			return err
		}
	}
	if new && (c.Old == nil || c.What&diff.Type != 0) {
		return p.file(c.Path, nil, c.New)
	}
	return nil
}

// file writes the patch of one file; a nil node is a file that is not there.
func (p *printer) file(path string, old, new *diff.Node) error {
	a, err := p.load(0, path, old)
	if err != nil {
		return err
	}
	b, err := p.load(1, path, new)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "diff --git %s %s\n", quote("a/"+path), quote("b/"+path))
	mode := ""
	switch {
	case old == nil:
		fmt.Fprintf(p.out, "new file mode %o\n", gitMode(new))
	case new == nil:
		fmt.Fprintf(p.out, "deleted file mode %o\n", gitMode(old))
	case gitMode(old) != gitMode(new):
		fmt.Fprintf(p.out, "old mode %o\nnew mode %o\n", gitMode(old), gitMode(new))
	default:
		mode = fmt.Sprintf(" %o", gitMode(old))
	}
	if a.id == b.id {
		return nil
	}
	fmt.Fprintf(p.out, "index %s..%s%s\n", a.id, b.id, mode)
	switch {
	case a.binary || b.binary:
		return p.binary(path, a, b)
	case len(a.text)+len(b.text) > 0:
		fmt.Fprintf(p.out, "--- %s\n+++ %s\n", label("a/", path, old), label("b/", path, new))
		writeHunks(p.out, a.text, b.text)
	}
	return nil
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
