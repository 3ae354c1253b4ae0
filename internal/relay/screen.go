package relay

import (
	"bytes"
	"os"
	"strings"
	"sync"
)

// A Screen is the caller's terminal, to which a command's output is written. It notes which states of the
// terminal, such as colours or mouse reports, the output may have changed, so that [Screen.Reset] can undo
// that.
type Screen struct {
	f *os.File

	mu     sync.Mutex
	parser parser
	tail   []byte // the last output, at most twice tailSize
}

// tailSize is how many bytes of a command's last output a [Screen] keeps.
const tailSize = 4096

// NewScreen returns the Screen that writes a command's output to the terminal tty and notes which of its
// states change.
func NewScreen(tty *os.File) *Screen { return &Screen{f: tty} }

// Write writes output to the terminal, and notes the control sequences in it, so that Reset can undo them.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.parser.note(p)
	s.keep(p)
	s.mu.Unlock()
	return len(p), writeAll(s.f, p)
}

// keep appends p to the last output, which [Screen.Tail] returns, and drops what is older than 4 KiB when
// that has doubled.
func (s *Screen) keep(p []byte) {
	p = p[max(0, len(p)-tailSize):]
	if len(s.tail)+len(p) > 2*tailSize {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-tailSize:]...)
	}
	s.tail = append(s.tail, p...)
}

// Tail returns the last bytes that were written, at most 4 KiB, with their control sequences.
func (s *Screen) Tail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.tail[max(0, len(s.tail)-tailSize):])
}

// Reset restores the terminal's state in which text is visible and keys arrive as they are typed. It writes
// nothing if the output had no control sequences, and never clears the screen. It moves the cursor only after
// the mode in which positions count from a margin: then to the last line.
func (s *Screen) Reset() {
	s.mu.Lock()
	text := s.parser.reset()
	s.parser = parser{}
	s.mu.Unlock()
	if text != "" {
		writeAll(s.f, []byte(text)) //nolint:errcheck // a terminal that has gone needs no reset
	}
}

// A parser recognises control sequences in a command's output (ECMA-48, and xterm's private ones of ctlseqs),
// and notes which states of the terminal they change.
type parser struct {
	state   int
	private byte
	args    []byte
	first   byte // of a character in UTF-8
	left    int  // bytes of it to come

	touched   bool // by a control sequence
	origin    bool // positions may count from a margin
	link      bool // text may be a link, or the title of one
	keyboard  bool // keys may be encoded in the way of kitty
	modifiers bool // keys may be encoded in the way of xterm
	cursor    bool // the cursor may have another shape
}

const (
	text = iota
	escape
	sequence // after CSI
)

const (
	esc = 0x1b
	csi = 0x9b // the control character of one byte
)

// mostArgs is how many bytes of the arguments of a control sequence in a command's output the parser stores;
// it ignores the rest.
const mostArgs = 64

func (p *parser) note(out []byte) {
	for _, b := range out {
		switch {
		case b == esc:
			p.touched, p.state = true, escape
		case p.state == escape:
			p.afterEscape(b)
		case p.state == sequence:
			p.inSequence(b)
		case b == 0x0e || b == 0x0f: // other character sets
			p.touched = true
		case p.control(b):
			p.touched, p.link = true, true
			if b == csi {
				p.begin()
			}
		}
	}
}

// control reports whether b is, or completes, a control character above ASCII (0x80 to 0x9f): a byte by
// itself, or the second byte of such a character in UTF-8. A byte of that range within another character of
// UTF-8 is part of that character.
func (p *parser) control(b byte) bool {
	first, left := p.first, p.left
	p.first, p.left = 0, 0
	switch {
	case b >= 0x80 && b < 0xc0 && left > 0:
		p.left = left - 1
		return first == 0xc2 && b <= 0x9f
	case b >= 0xf0:
		p.first, p.left = b, 3
	case b >= 0xe0:
		p.first, p.left = b, 2
	case b >= 0xc2:
		p.first, p.left = b, 1
	}
	return b >= 0x80 && b <= 0x9f
}

func (p *parser) afterEscape(b byte) {
	p.state = text
	switch {
	case b == '[':
		p.begin()
	case b == ']', b == 'P', b == '_', b == '^', b == 'X':
		p.link = true
	case b < 0x20 || b >= 0x80: // a terminal goes on behind it
		p.state = escape
	}
}

func (p *parser) begin() { p.state, p.private, p.args = sequence, 0, p.args[:0] }

func (p *parser) inSequence(b byte) {
	switch {
	case b >= '<' && b <= '?':
		p.private = b
	case b >= 0x40 && b <= 0x7e:
		p.state = text
		p.end(b)
	case b >= 0x20 && len(p.args) < mostArgs:
		p.args = append(p.args, b)
	}
}

// end notes the effect on the terminal of a complete control sequence of a command's output, with the final
// byte b.
func (p *parser) end(b byte) {
	switch {
	case b == 'h' && (len(p.args) >= mostArgs || len(bytes.TrimLeft(p.args, "0123456789;")) > 0):
		p.origin = true // which modes it sets is not known
	case b == 'h' && p.private == '?':
		for arg := range bytes.SplitSeq(p.args, []byte(";")) {
			if string(bytes.TrimLeft(arg, "0")) == "6" {
				p.origin = true
			}
		}
	case b == 'r' && p.private == '?': // restores modes that were saved
		p.origin = true
	case b == 'u' && p.private != 0:
		p.keyboard = true
	case b == 'm' && p.private == '>':
		p.modifiers = true
	case b == 'q' && len(p.args) > 0 && p.args[len(p.args)-1] == ' ':
		p.cursor = true
	}
}

// reset returns the control sequences that undo the changes that a command's output may have made to the
// terminal's state; "" if the output had no control sequence. Most are always among them: in a terminal whose
// state is as usual they do nothing.
func (p *parser) reset() string {
	if !p.touched {
		return ""
	}
	var b strings.Builder
	b.WriteString("\x1b\\")           // the end of an unfinished string
	b.WriteString("\x1b7\x1b[?1049l") // the main screen; on that already, the cursor stays
	b.WriteString("\x1b7\x1b[r\x1b8") // all lines scroll; this alone would move the cursor
	if p.origin {
		b.WriteString("\x1b[?6l\x1b[999;1H")
	}
	b.WriteString("\x1b[?69l")                                                       // no margins at the sides
	b.WriteString("\x0f\x1b(B\x1b[m")                                                // letters, and no colours
	b.WriteString("\x1b[4l\x1b[?7h")                                                 // text replaces text, and long lines wrap
	b.WriteString("\x1b[?5l\x1b[?25h")                                               // not inverse, and with a cursor
	b.WriteString("\x1b[?1l\x1b>")                                                   // the usual codes of keys
	b.WriteString("\x1b[?9;1000;1001;1002;1003;1004;1005;1006;1015;1016;2004;2026l") // no reports of mouse, focus, paste
	if p.link {
		b.WriteString("\x1b]8;;\x1b\\")
	}
	if p.keyboard {
		b.WriteString("\x1b[=0u\x1b[<99u")
	}
	if p.modifiers {
		b.WriteString("\x1b[>4m")
	}
	if p.cursor {
		b.WriteString("\x1b[0 q")
	}
	return b.String()
}
