package patch

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/diff/words"
)

// The colours of a terminal (ECMA-48, 8.3.117).
const (
	plain    = "\x1b[m"
	bold     = "\x1b[1m"
	red      = "\x1b[31m"
	green    = "\x1b[32m"
	cyan     = "\x1b[36m"
	reversed = "\x1b[7m"
	upright  = "\x1b[27m"
)

// A Painter shows a patch, which is written to it, on a terminal: lines that went in
// red, lines that came in green, and of those that stand for one another the
// words that differ reversed. What is not its own passes through tame, which leaves
// nothing that a terminal would act on. Close writes what is left; an error of the
// terminal is that of the next call.
//
// Memory: lines that follow one another and all went or came, up to a bound.
type Painter struct {
	w    io.Writer
	tame func(string) string
	err  error
	part []byte // of a line whose end has not come
	// before and after are how many lines of each side the hunk still has.
	before, after int
	went, came    []string
	size          int // of both
}

// paintMax bounds the lines in which words are looked for, in bytes.
const paintMax = 64 << 10

// NewPainter paints to w.
func NewPainter(w io.Writer, tame func(string) string) *Painter { return &Painter{w: w, tame: tame} }

// Write takes a part of the patch.
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

// Close writes what is left.
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
	if strings.HasPrefix(line, `\ `) && len(p.went)+len(p.came) > 0 {
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
		p.put(cyan, p.tame(line))
	case headed(line):
		p.put(bold, p.tame(line))
	default:
		p.put("", p.tame(line))
	}
}

// lengthOf returns how many lines a side of a hunk has, by its range in the hunk's
// header: "-first,count", or "-first" for one line. It returns 0 for a count that is
// no number.
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

// headed tells the lines above the hunks of a file.
func headed(line string) bool {
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

// inHunk takes a line of a hunk. Lines that went and lines that came after them are
// kept until all are there.
func (p *Painter) inHunk(line string) {
	op := byte(' ')
	if line != "" {
		op = line[0]
	}
	switch op {
	case '-':
		if len(p.came) > 0 {
			p.flush()
		}
		p.before--
		p.went = append(p.went, line)
	case '+':
		p.after--
		p.came = append(p.came, line)
	case '\\': // no newline: belongs to the line above it
		if kept := p.last(); kept != nil {
			*kept += "\n" + line
			return
		}
		p.put("", p.tame(line))
		return
	default:
		p.flush()
		p.before--
		p.after--
		p.put("", p.tame(line))
		return
	}
	if p.size += len(line); p.size > paintMax {
		p.flush()
	}
}

// last is the line that was kept last.
func (p *Painter) last() *string {
	switch {
	case len(p.came) > 0:
		return &p.came[len(p.came)-1]
	case len(p.went) > 0:
		return &p.went[len(p.went)-1]
	}
	return nil
}

// flush writes the lines that were kept. The first that went is taken to have
// become the first that came, and so on.
func (p *Painter) flush() {
	gone, came := make([][]words.Span, len(p.went)), make([][]words.Span, len(p.came))
	for i := range min(len(gone), len(came)) {
		if p.size <= paintMax {
			gone[i], came[i] = words.Changed(textOf(p.went[i]), textOf(p.came[i]))
		}
	}
	p.lines(red, p.went, gone)
	p.lines(green, p.came, came)
	p.went, p.came, p.size = nil, nil, 0
}

// textOf is a kept line without its sign, and without a remark below it.
func textOf(line string) string {
	line, _, _ = strings.Cut(line, "\n")
	return line[1:]
}

func (p *Painter) lines(colour string, lines []string, marks [][]words.Span) {
	for i, line := range lines {
		p.put(colour, line[:1]+p.mark(textOf(line), marks[i]))
		if _, remark, has := strings.Cut(line, "\n"); has {
			p.put("", p.tame(remark))
		}
	}
}

// mark reverses what differs in a line.
func (p *Painter) mark(line string, spans []words.Span) string {
	var b strings.Builder
	at := 0
	for _, s := range spans {
		b.WriteString(p.tame(line[at:s.Start]) + reversed + p.tame(line[s.Start:s.End]) + upright)
		at = s.End
	}
	b.WriteString(p.tame(line[at:]))
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
