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

// The greatest sizes, in bytes, of files that a patch shows as text, as binary, or at all.
const (
	// TextMax is the size in bytes of the largest file that a patch shows line by line; larger ones are
	// written as binary.
	TextMax = 8 << 20
	// FileMax is the size in bytes of the largest file in a patch; a larger one is only listed in the header,
	// because git rejects a patch with it.
	FileMax = 512 << 20
)

// Options configure a patch, for [Write]. The zero value writes a renamed file as one deleted and one added.
type Options struct {
	// Renames, from [diff.Renames], are written as renames if git supports them: files and
	// symbolic links. Others are written as deleted and added.
	Renames []diff.Rename
}

// Write writes changes, which must be in order, as a patch like `git diff --binary
// --full-index`: `git apply` on a copy of the old tree gives the new one, as far as git can
// represent it (regular files, the owner's execute permission, symbolic links). patch(1) does
// the same for texts. The header, which both skip, lists the differences that they cannot
// apply, and times only where nothing else differs.
//
// old and new are the compared trees. Cost: reads each changed file of up to FileMax once, a
// binary one twice. Memory: two files of TextMax. Errors: *errs.Error for a file that cannot be
// read; those of w.
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

// moves holds the renames that git can represent in a patch, by new path, and the set of their old paths.
type moves struct {
	to   map[string]move // by the file's new path
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

// change writes a changed path to the patch. Git represents a change of a file's type as a deletion and an
// addition.
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

// An ends holds the path and the metadata of a changed file before and after the change, for a patch; a nil
// node is a missing file.
type ends struct {
	from, to string
	old, new *diff.Node
}

// file writes the part of the patch about one file. e has its old and new version; r is nil unless the file
// was renamed.
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

// percent returns the similarity of the versions a and b of a renamed file as a git patch states it: 100 only
// if they are equal.
func percent(a, b blob, r *diff.Rename) int {
	if a.id == b.id {
		return 100
	}
	return min(r.Similarity, 99)
}

// label returns the file name for the --- or +++ line of a text patch, with prefix, "a/" or "b/", before path; n is
// the file's node. As in git, a tab after a name with a blank prevents readers from cutting it there.
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

// fits reports whether a git patch can represent a node: it is a regular file of at most FileMax, or a
// symbolic link.
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
