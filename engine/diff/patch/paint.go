package patch

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/diff/words"
)

// The terminal control sequences that set and reset the colours of a patch's lines (ECMA-48, 8.3.117).
const (
	plain    = "\x1b[m"
	bold     = "\x1b[1m"
	red      = "\x1b[31m"
	green    = "\x1b[32m"
	cyan     = "\x1b[36m"
	reversed = "\x1b[7m"
	upright  = "\x1b[27m"
)

// A Painter shows a patch, which is written to it, on a terminal: removed lines in red, added
// lines in green, and the differing words of corresponding lines reversed. It passes all other
// text through tame, which must remove terminal control sequences. Close writes the rest. After
// an error of the terminal, the next call returns it.
//
// Memory: consecutive removed and added lines, up to a bound.
type Painter struct {
	w      io.Writer
	escape func(string) string
	err    error
	part   []byte // of a line whose end has not come
	// before and after count the remaining lines of each side of the hunk.
	before, after  int
	removed, added []string
	size           int // of both
}

// paintMax is the size in bytes up to which a run of changed lines of a patch is shown with the differing
// words marked. A longer run is shown without marks.
const paintMax = 64 << 10

// NewPainter returns a Painter that shows a patch on the terminal w. tame removes terminal control sequences
// from text.
func NewPainter(w io.Writer, tame func(string) string) *Painter { return &Painter{w: w, escape: tame} }

// Write takes the next part of the patch, and shows its complete lines on the terminal.
func (p *Painter) Write(b []byte) (int, error) {
	rest := b
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		p.line(string(append(p.part, rest[:end]...)))
		p.part, rest = p.part[:0], rest[end+1:]
	}
	p.part = append(p.part, rest...)
	if p.err != nil {
		return 0, p.err
	}
	return len(b), nil
}

// Close shows the remaining lines of the patch in colour on the terminal, which stays open.
func (p *Painter) Close() error {
	if len(p.part) > 0 {
		p.line(string(p.part))
		p.part = nil
	}
	p.flush()
	return p.err
}

func (p *Painter) line(line string) {
	if p.before > 0 || p.after > 0 {
		p.inHunk(line)
		return
	}
	if strings.HasPrefix(line, `\ `) && len(p.removed)+len(p.added) > 0 {
		p.inHunk(line)
		return
	}
	p.flush()
	switch {
	case strings.HasPrefix(line, "@@ "):
		fields := strings.Fields(line)
		if len(fields) > 3 {
			p.before, p.after = lengthOf(fields[1]), lengthOf(fields[2])
		}
		p.put(cyan, p.escape(line))
	case isHeader(line):
		p.put(bold, p.escape(line))
	default:
		p.put("", p.escape(line))
	}
}

// lengthOf returns the number of lines of one side of a hunk, from its header: "-first,count", or "-first"
// for one line. It returns 0 for a malformed count.
func lengthOf(span string) int {
	_, count, counted := strings.Cut(span, ",")
	if !counted {
		return 1
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// isHeader reports whether a line of a patch is one of the header lines of a file.
func isHeader(line string) bool {
	for _, head := range []string{
		"diff --git ", "--- ", "+++ ", "index ", "new file mode ", "deleted file mode ", "old mode ", "new mode ",
		"similarity index ", "rename from ", "rename to ", "GIT binary patch",
	} {
		if strings.HasPrefix(line, head) {
			return true
		}
	}
	return false
}

// inHunk handles a line inside a hunk of the patch. It collects removed and added lines until their run is
// complete, so that their words can be compared.
func (p *Painter) inHunk(line string) {
	op := byte(' ')
	if line != "" {
		op = line[0]
	}
	switch op {
	case '-':
		if len(p.added) > 0 {
			p.flush()
		}
		p.before--
		p.removed = append(p.removed, line)
	case '+':
		p.after--
		p.added = append(p.added, line)
	case '\\': // no newline: belongs to the line above it
		if last := p.last(); last != nil {
			*last += "\n" + line
			return
		}
		p.put("", p.escape(line))
		return
	default:
		p.flush()
		p.before--
		p.after--
		p.put("", p.escape(line))
		return
	}
	if p.size += len(line); p.size > paintMax {
		p.flush()
	}
}

// last returns the line of the patch that was collected last, removed or added, or nil if there is none.
func (p *Painter) last() *string {
	switch {
	case len(p.added) > 0:
		return &p.added[len(p.added)-1]
	case len(p.removed) > 0:
		return &p.removed[len(p.removed)-1]
	}
	return nil
}

// flush writes the collected removed and added lines in colour, with differing words marked. It compares the
// first removed line with the first added one, and so on.
func (p *Painter) flush() {
	gone, came := make([][]words.Span, len(p.removed)), make([][]words.Span, len(p.added))
	for i := range min(len(gone), len(came)) {
		if p.size <= paintMax {
			gone[i], came[i] = words.Changed(textOf(p.removed[i]), textOf(p.added[i]))
		}
	}
	p.lines(red, p.removed, gone)
	p.lines(green, p.added, came)
	p.removed, p.added, p.size = nil, nil, 0
}

// textOf returns a changed line of a patch without its sign (+ or -), and without a remark such as "no
// newline" after it.
func textOf(line string) string {
	line, _, _ = strings.Cut(line, "\n")
	return line[1:]
}

func (p *Painter) lines(colour string, lines []string, marks [][]words.Span) {
	for i, line := range lines {
		p.put(colour, line[:1]+p.mark(textOf(line), marks[i]))
		if _, remark, has := strings.Cut(line, "\n"); has {
			p.put("", p.escape(remark))
		}
	}
}

// mark returns a line of the patch, safe for the terminal, with the spans that differ from the other version
// in reversed colours.
func (p *Painter) mark(line string, spans []words.Span) string {
	var b strings.Builder
	at := 0
	for _, s := range spans {
		b.WriteString(p.escape(line[at:s.Start]) + reversed + p.escape(line[s.Start:s.End]) + upright)
		at = s.End
	}
	b.WriteString(p.escape(line[at:]))
	return b.String()
}

func (p *Painter) put(colour, text string) {
	if p.err != nil {
		return
	}
	if colour != "" {
		text = colour + text + plain
	}
	_, p.err = io.WriteString(p.w, text+"\n")
}
