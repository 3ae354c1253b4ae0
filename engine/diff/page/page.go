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

// The bounds of a review page, so that a browser can show it. The page states what it leaves out, with the
// command that shows it.
const (
	// Max is the greatest size in bytes of a page of changes for review, so that a browser can show it.
	Max = 8 << 20
	// TextMax is the maximum size in bytes, and TextLinesMax the maximum number of lines,
	// of a file that is compared line by line.
	TextMax      = 8 << 20
	TextLinesMax = 200_000
	// HashMax is the greatest size in bytes of a file whose SHA-256 the page shows, because the whole file
	// must be read for it.
	HashMax = 64 << 20
	// LinesMax is the maximum number of lines of a file that the page shows, and LineMax that of bytes of a
	// line.
	LinesMax = 3000
	LineMax  = 2000

	pathsMax = 1 << 20   // of the tree of paths
	filesMax = 6 << 20   // of all files
	fileMax  = 512 << 10 // of the lines of one
	nameMax  = 4096      // of a name, a target or a command, before it is escaped
	valueMax = 256       // of an attribute
)

// A Page describes the changes that a page for review in a browser shows; it is the input of [Write].
type Page struct {
	// Title names the comparison.
	Title string
	// Command is the program and arguments that make the same comparison. Where the page
	// leaves content out, it shows this command with --patch and a path.
	Command []string
	// Made is the time of creation that the page shows.
	Made  time.Time
	Parts []Part
}

// A Part is the changes below one directory, such as the workspace, which the page for a browser shows
// together.
type Part struct {
	// Root is the directory that the paths of Changes are relative to.
	Root string
	// Old and New are the two states of Root.
	Old, New *os.File
	Changes  []diff.Change
	Renames  []diff.Rename
}

// Written describes a page of changes that [Write] has written for a browser: its size, and how much it
// leaves out.
type Written struct {
	// Size is the size of the page in bytes.
	Size int64
	// Paths is the number of changed paths. LeftOut is the number of those without a section
	// in the page.
	Paths, LeftOut int
	// Unread is the number of paths shown without their content, because it could not be
	// read.
	Unread int
}

// Write writes p, a page of changes for a browser, to w. It leaves out directories of which only the time
// differs, as tables of changes do, because some name in them was added or removed.
//
// Cost: reads and compares the files that are shown. Memory: Max, two files of TextMax, a hundred bytes for
// each of their lines, and some words for each change. A file that cannot be read, or is gone, is no error:
// the page says so. Errors: ErrInterrupted; those of w, after which the output is incomplete.
func Write(ctx context.Context, w io.Writer, p Page) (Written, error) {
	b := builder{ctx: ctx, page: p}
	for _, part := range p.Parts {
		b.rows(part)
	}
	if err := b.sections(); err != nil {
		return Written{}, err
	}
	out := newSheet(w)
	b.document(out)
	if err := out.w.Flush(); err != nil {
		return Written{}, err
	}
	return Written{Size: out.n, Paths: len(b.all), LeftOut: b.leftOut, Unread: b.unread}, nil
}

// A builder creates one page of changes for a browser. It first writes the sections of the files to memory,
// because the tree of paths above them shows the number of lines added and removed.
type builder struct {
	ctx  context.Context
	page Page
	all  []entry
	// files has the HTML of the files of each part, in order.
	files           []*bytes.Buffer
	used            int // bytes in files
	leftOut, unread int
	added, removed  int // lines
	sum             diff.Summary
	renamed         int
}

// An entry is a changed path that the page shows: in the tree of paths and, with its content, in a section.
type entry struct {
	report.Row
	part int
	// old is the node before the change, at its old path, or nil if the path is new.
	old *diff.Node
	// rename is nil unless the path was renamed.
	rename *diff.Rename
	// shown is set if the entry has a section.
	shown bool
	lines lineCount
}

// A lineCount is the number of lines added to and removed from a file; known is set for texts.
type lineCount struct {
	added, removed int
	known          bool
}

// rows adds an entry to b.all, the list of changed paths that the page shows, for each change of a part. Both
// changes of a rename share one.
func (b *builder) rows(part Part) {
	shown := make([]diff.Change, 0, len(part.Changes))
	gone := map[string]*diff.Node{}
	for _, c := range part.Changes {
		if c.What == diff.Time && c.New.Mode.IsDir() {
			continue
		}
		shown = append(shown, c)
		if c.Kind == diff.Deleted && len(part.Renames) > 0 {
			gone[c.Path] = c.Old
		}
	}
	moved := map[string]*diff.Rename{}
	for i := range part.Renames {
		moved[part.Renames[i].To] = &part.Renames[i]
	}
	b.sum.Add(diff.Summarise(shown))
	b.renamed += len(part.Renames)
	for _, r := range report.Rows(shown, part.Renames) {
		e := entry{Row: r, part: len(b.files), old: r.Old}
		if r.From != "" {
			e.rename, e.old = moved[r.Path], gone[r.From]
		}
		b.all = append(b.all, e)
	}
	b.files = append(b.files, new(bytes.Buffer))
}

// sections writes the HTML section of each changed path to b.files, until filesMax bytes are reached. It counts the
// others in b.leftOut. Error: ErrInterrupted.
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

// path returns the absolute path of e, one changed path of the page.
func (b *builder) path(e *entry) string { return filepath.Join(b.page.Parts[e.part].Root, e.Path) }
