// Package page writes changes as a page that a person reviews in a browser: one
// HTML file that refers to nothing outside itself.
//
// What a sandbox holds is hostile, and so are the names in it. Three things keep
// it from doing anything in the page, each without the others. Whatever comes from a
// tree is written as text between tags, escaped, with control characters and
// those that hide or turn around made visible; it never becomes part of a tag, an
// address, a style or a script, which the types see to ([markup]). The page's own
// policy lets a browser run and apply only the script and the style whose hashes
// it names, and fetch nothing. And the script never makes markup of text.
//
// The page is read without a script, too. The script folds, filters, jumps, and shows
// both sides beside one another; what is marked as reviewed is known to the
// open page alone.
//
// html/template is not used: with one context to escape for it has nothing to
// choose, it keeps the linker from leaving out unused methods of the whole program, and
// it knows nothing of invisible characters.
package page

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/errs"
)

// The bounds of a page. What they leave out is said in it, with the command that
// shows it.
const (
	// Max is the size of a page, in bytes, beyond which none grows.
	Max = 8 << 20
	// TextMax is the size of a file, and TextLinesMax the number of its lines, beyond
	// which it is not compared line by line.
	TextMax      = 8 << 20
	TextLinesMax = 200_000
	// HashMax is the size of a file beyond which it is not read at all.
	HashMax = 64 << 20
	// LinesMax is the number of lines of a file that are shown, and LineMax the bytes
	// of a line.
	LinesMax = 3000
	LineMax  = 2000

	pathsMax = 1 << 20   // of the tree of paths
	filesMax = 6 << 20   // of all files
	fileMax  = 512 << 10 // of the lines of one
	nameMax  = 4096      // of a name, a target or a command, before it is escaped
	valueMax = 256       // of an attribute
)

// A Page is what is to be reviewed.
type Page struct {
	// Title says what is compared.
	Title string
	// Command is the program and arguments that compare the same. Where something
	// is left out, the page shows it with --patch and a path added.
	Command []string
	// Made is the time that the page gives for itself.
	Made  time.Time
	Parts []Part
}

// A Part is the changes beneath one directory.
type Part struct {
	// Root is the directory that the paths of Changes are relative to.
	Root string
	// Old and New are Root in both states.
	Old, New *os.File
	Changes  []diff.Change
	Renames  []diff.Rename
}

// Written says what became of a page.
type Written struct {
	// Size is that of the page, in bytes.
	Size int64
	// Paths is how many changed, LeftOut how many of them the page shows nothing of
	// but their number or name.
	Paths, LeftOut int
	// Unread is how many are shown without their content, because it could not be
	// read.
	Unread int
}

// Write writes the page. Directories in which only the time differs are left out,
// as in a table: some name in them came or went.
//
// Cost: reads and compares the files that are shown. Memory: Max, two files of
// TextMax, a hundred bytes for each of their lines, and some words a change. A file that cannot
// be read, or is gone, is no error: the page says so. Errors: ErrInterrupted;
// those of w, after which what was written is no page.
func Write(ctx context.Context, w io.Writer, p Page) (Written, error) {
	b := builder{ctx: ctx, page: p}
	for _, part := range p.Parts {
		b.rows(part)
	}
	if err := b.sections(); err != nil {
		return Written{}, err
	}
	out := newSheet(w)
	b.whole(out)
	if err := out.w.Flush(); err != nil {
		return Written{}, err
	}
	return Written{Size: out.n, Paths: len(b.all), LeftOut: b.leftOut, Unread: b.unread}, nil
}

// A builder makes a page. The files come first, into memory, because the tree of
// paths above them tells how many lines each gained and lost.
type builder struct {
	ctx  context.Context
	page Page
	all  []entry
	// files are the sections of the parts, in order.
	files           []*bytes.Buffer
	used            int // bytes in files
	leftOut, unread int
	added, removed  int // lines
	sum             diff.Summary
	renamed         int
}

// An entry is a changed path.
type entry struct {
	report.Row
	part int
	// old is what the path was, under the name it had; nil where it was not.
	old *diff.Node
	// rename is nil where the path has not moved.
	rename *diff.Rename
	// shown: it has a section.
	shown bool
	lines lineCount
}

// A lineCount is how many lines a file gained and lost; known where it is text.
type lineCount struct {
	added, removed int
	known          bool
}

// rows makes entries of the changes of a part.
func (b *builder) rows(part Part) {
	told := make([]diff.Change, 0, len(part.Changes))
	gone := map[string]*diff.Node{}
	for _, c := range part.Changes {
		if c.What == diff.Time && c.New.Mode.IsDir() {
			continue
		}
		told = append(told, c)
		if c.Kind == diff.Deleted && len(part.Renames) > 0 {
			gone[c.Path] = c.Old
		}
	}
	moved := map[string]*diff.Rename{}
	for i := range part.Renames {
		moved[part.Renames[i].To] = &part.Renames[i]
	}
	b.sum.Add(diff.Summarise(told))
	b.renamed += len(part.Renames)
	for _, r := range report.Rows(told, part.Renames) {
		e := entry{Row: r, part: len(b.files), old: r.Old}
		if r.From != "" {
			e.rename, e.old = moved[r.Path], gone[r.From]
		}
		b.all = append(b.all, e)
	}
	b.files = append(b.files, new(bytes.Buffer))
}

// sections writes the section of each entry, as far as there is room.
func (b *builder) sections() error {
	for i := range b.all {
		if err := b.ctx.Err(); err != nil {
			return &errs.Error{Op: "writing the page", Kind: errs.ErrInterrupted, Err: err}
		}
		e := &b.all[i]
		if b.used >= filesMax {
			b.leftOut++
			continue
		}
		e.shown = true
		b.section(i)
		b.added, b.removed = b.added+e.lines.added, b.removed+e.lines.removed
	}
	return nil
}

// path is where an entry lies.
func (b *builder) path(e *entry) string { return filepath.Join(b.page.Parts[e.part].Root, e.Path) }
