package patch

import (
	"bytes"
	"fmt"
	"io"

	zdiff "znkr.io/diff"
	"znkr.io/diff/textdiff"
)

// A Text is the comparison of two versions of a text, from which a user can take some changes and leave
// others. A change is a run of removed and added lines; changes are numbered from 0.
type Text struct {
	edits []textdiff.Edit[[]byte]
	// start and end delimit the edits of each change.
	start, end []int
}

// A Range is consecutive changes of a [Text], numbered First to Last, such as those of one hunk of a patch.
type Range struct{ First, Last int }

// textContext is how many unchanged lines a hunk of a patch shows before and after a change.
const textContext = 3

// CompareTexts compares two versions of a text by lines, and numbers the changes, so that a user can take
// some of them.
func CompareTexts(old, new []byte) *Text {
	t := &Text{edits: textdiff.Edits(old, new)}
	for i, e := range t.edits {
		switch {
		case e.Op == zdiff.Match:
		case i > 0 && t.edits[i-1].Op != zdiff.Match:
			t.end[len(t.end)-1] = i + 1
		default:
			t.start, t.end = append(t.start, i), append(t.end, i+1)
		}
	}
	return t
}

// Hunks returns the changes grouped as a patch would show them: those whose context touches are in one hunk.
func (t *Text) Hunks() (hunks []Range) {
	for i := range t.start {
		if i > 0 && t.start[i]-t.end[i-1] <= 2*textContext {
			hunks[len(hunks)-1].Last = i
		} else {
			hunks = append(hunks, Range{i, i})
		}
	}
	return hunks
}

// WriteHunk writes the consecutive changes h of the text as one hunk of a patch.
func (t *Text) WriteHunk(w io.Writer, h Range) error {
	from, to := t.start[h.First]-textContext, t.end[h.Last]+textContext
	if from = max(from, 0); h.First > 0 {
		from = max(from, t.end[h.First-1])
	}
	if to = min(to, len(t.edits)); h.Last+1 < len(t.start) {
		to = min(to, t.start[h.Last+1])
	}
	var before, old, new int
	for i, e := range t.edits[:to] {
		switch {
		case i < from && e.Op != zdiff.Insert:
			before++
		case i < from:
		case e.Op == zdiff.Match:
			old, new = old+1, new+1
		case e.Op == zdiff.Delete:
			old++
		case e.Op == zdiff.Insert:
			new++
		}
	}
	after := before
	for _, e := range t.edits[:from] {
		switch e.Op {
		case zdiff.Insert:
			after++
		case zdiff.Delete:
			after--
		case zdiff.Match:
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "@@ -%s +%s @@\n", span(before, before+old), span(after, after+new))
	for _, e := range t.edits[from:to] {
		b.WriteByte(map[zdiff.Op]byte{zdiff.Match: ' ', zdiff.Delete: '-', zdiff.Insert: '+'}[e.Op])
		b.Write(e.Line)
		if !bytes.HasSuffix(e.Line, []byte{'\n'}) {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// With returns the old text with those changes made for which taken is true. Where the last line of a version
// has no newline and lines of the other follow it, With adds one.
func (t *Text) With(taken func(change int) bool) []byte {
	var b bytes.Buffer
	change := 0
	for i, e := range t.edits {
		for change < len(t.end) && i >= t.end[change] {
			change++
		}
		if e.Op == zdiff.Match || (e.Op == zdiff.Insert) == taken(change) {
			if n := b.Len(); n > 0 && b.Bytes()[n-1] != '\n' {
				b.WriteByte('\n')
			}
			b.Write(e.Line)
		}
	}
	return b.Bytes()
}
