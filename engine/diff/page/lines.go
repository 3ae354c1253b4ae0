package page

import (
	"strings"

	zdiff "znkr.io/diff"
	"znkr.io/diff/textdiff"

	"github.com/snapfs/snapfs/engine/diff/words"
)

type (
	hunk = textdiff.Hunk[string]
	edit = textdiff.Edit[string]
)

// hunks compares two versions of a text by lines, for the page. It returns the differing regions with
// context, and how many lines were added and removed.
func hunks(old, new content) ([]hunk, lineCount) {
	all := textdiff.Hunks(string(old.text), string(new.text))
	n := lineCount{known: true}
	for _, h := range all {
		for _, e := range h.Edits {
			switch e.Op {
			case zdiff.Delete:
				n.removed++
			case zdiff.Insert:
				n.added++
			}
		}
	}
	return all, n
}

// A table writes the changed lines of one file as an HTML table, up to the bounds of a page.
type table struct {
	*sheet
	start int64
	shown int
}

// lines writes the differing regions of a file as an HTML table, and returns the number of lines left out
// because the table is full.
func lines(s *sheet, all []hunk) (left int) {
	t := table{sheet: s, start: s.n}
	t.mark(`<table><thead><tr><th scope=col>Old line<th scope=col>New line<th scope=col>Text</thead>`)
	for _, h := range all {
		if t.full() {
			left += len(h.Edits)
			continue
		}
		t.mark(`<tbody><tr class=h><th colspan=3 scope=rowgroup>`)
		t.span(h.LineNoX, h.EndLineNoX)
		t.mark(" → ")
		t.span(h.LineNoY, h.EndLineNoY)
		left += t.hunk(h.Edits)
	}
	t.mark("</table>")
	return left
}

func (t *table) full() bool { return t.shown >= LinesMax || t.n-t.start > fileMax }

// span writes the numbers of the first and the last line of a region of changed lines to the HTML page. start
// and end count from 0, end is exclusive; the written numbers count from 1.
func (t *table) span(start, end int) {
	switch end - start {
	case 0:
		t.mark("nothing")
	case 1:
		t.mark("line ")
		t.num(end)
	default:
		t.mark("lines ")
		t.num(start + 1)
		t.mark("–")
		t.num(end)
	}
}

// hunk writes the lines of one differing region of a file to the page: unchanged lines one by one, and each
// run of removed and added lines together, so that their words can be compared. It returns the number of
// lines left out.
func (t *table) hunk(edits []edit) (left int) {
	for len(edits) > 0 {
		n := 0
		for n < len(edits) && edits[n].Op != zdiff.Match {
			n++
		}
		if n == 0 {
			if t.full() {
				return left + len(edits)
			}
			e := edits[0]
			t.row("<tr><td>", e.LineNoX, e.LineNoY, e.Line, nil, "", "")
			edits = edits[1:]
			continue
		}
		left += t.replaced(edits[:n])
		edits = edits[n:]
	}
	return left
}

// replaced writes the removed lines of one run of changes to the page, then the added ones, with the
// differing words marked. It returns the number of lines left out.
func (t *table) replaced(edits []edit) (left int) {
	var gone, came []edit
	for _, e := range edits {
		if e.Op == zdiff.Delete {
			gone = append(gone, e)
		} else {
			came = append(came, e)
		}
	}
	goneWords, cameWords := make([][]words.Span, len(gone)), make([][]words.Span, len(came))
	for i := range min(len(gone), len(came), LinesMax) {
		goneWords[i], cameWords[i] = words.Changed(bare(gone[i].Line), bare(came[i].Line))
	}
	for i, e := range gone {
		if t.full() {
			return len(edits) - i
		}
		t.row(`<tr class=d><td>`, e.LineNoX, -1, e.Line, goneWords[i], "<del>", "</del>")
	}
	for i, e := range came {
		if t.full() {
			return len(came) - i
		}
		t.row(`<tr class=a><td>`, -1, e.LineNoY, e.Line, cameWords[i], "<ins>", "</ins>")
	}
	return 0
}

func bare(line string) string { return strings.TrimSuffix(line, "\n") }

// row writes one line of a file to the HTML table, with its old number x and new number y, counted from zero; -1 for
// none. begin is the tag that starts the row. spans are the differing words of the line; open and end are the tags
// written around each.
func (t *table) row(begin markup, x, y int, line string, spans []words.Span, open, end markup) {
	t.shown++
	t.mark(begin)
	t.number(x)
	t.mark("<td>")
	t.number(y)
	t.mark("<td>")
	text, ended := strings.CutSuffix(line, "\n")
	t.spans(text, spans, open, end)
	if !ended {
		t.mark("<em>no newline at the end</em>")
	}
}

func (t *table) number(n int) {
	if n >= 0 {
		t.num(n + 1)
	}
}
