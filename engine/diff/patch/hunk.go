package patch

import (
	"bufio"
	"bytes"
	"fmt"

	zdiff "znkr.io/diff"
	"znkr.io/diff/textdiff"
)

// writeHunks writes the lines in which the texts a and b differ as hunks of a patch, with three lines of
// context.
func writeHunks(out *bufio.Writer, a, b []byte) {
	for _, h := range textdiff.Hunks(a, b) {
		fmt.Fprintf(out, "@@ -%s +%s @@\n", span(h.LineNoX, h.EndLineNoX), span(h.LineNoY, h.EndLineNoY))
		for _, e := range h.Edits {
			switch e.Op {
			case zdiff.Match:
				out.WriteByte(' ')
			case zdiff.Delete:
				out.WriteByte('-')
			case zdiff.Insert:
				out.WriteByte('+')
			}
			out.Write(e.Line)
			if !bytes.HasSuffix(e.Line, []byte{'\n'}) {
				out.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
}

// span formats the lines [start, end) of a text for the header of a hunk of a patch: the number of the first
// line and the count; for an empty range, the number of the line before it.
func span(start, end int) string {
	switch end - start {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprint(start + 1)
	}
	return fmt.Sprintf("%d,%d", start+1, end-start)
}

// countLines returns the number of lines that a patch which turns the text a into the text b adds and
// removes.
func countLines(a, b []byte) (added, removed int) {
	for _, h := range textdiff.Hunks(a, b, zdiff.Context(0)) {
		for _, e := range h.Edits {
			switch e.Op {
			case zdiff.Delete:
				removed++
			case zdiff.Insert:
				added++
			}
		}
	}
	return added, removed
}
