package page

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/diff/words"
)

// A markup is HTML from the source of this package, which is written unescaped. Nothing is ever converted to
// it: without a conversion only a constant has this type.
type markup string

// A sheet writes the HTML of a review page to a buffer and counts its bytes. All text passes through its
// methods, which escape it. The first write error is returned by Flush of the buffer.
type sheet struct {
	w *bufio.Writer
	n int64
}

func newSheet(w io.Writer) *sheet { return &sheet{w: bufio.NewWriterSize(w, 64<<10)} }

// mark writes parts to the page without escaping them: HTML that is constant in the source of this package.
func (s *sheet) mark(parts ...markup) {
	for _, m := range parts {
		n, _ := s.w.WriteString(string(m))
		s.n += int64(n)
	}
}

// num writes a number in decimal to the page.
func (s *sheet) num(n int) { s.raw(strconv.Itoa(n)) }

// raw writes text that needs no escape in HTML, such as a number, to the page.
func (s *sheet) raw(t string) {
	n, _ := s.w.WriteString(t)
	s.n += int64(n)
}

// text writes text from a tree, which may be hostile, between HTML tags: escaped, and with every invisible or
// reordering character made visible in an element of its own.
func (s *sheet) text(t string) {
	for t != "" {
		n := plain(t)
		s.raw(t[:n])
		if t = t[n:]; t == "" {
			return
		}
		r, size := utf8.DecodeRuneInString(t)
		switch {
		case r == utf8.RuneError && size == 1:
			s.mark("<i>&lt;")
			s.raw(hexByte(t[0]))
			s.mark("&gt;</i>")
		case r == '<':
			s.mark("&lt;")
		case r == '>':
			s.mark("&gt;")
		case r == '&':
			s.mark("&amp;")
		case r < 0x20 || r == 0x7f:
			s.mark("<i>^")
			s.raw(string(r ^ 0x40)) // none of < > &
			s.mark("</i>")
		default:
			s.mark("<i>&lt;U+")
			s.raw(strings.ToUpper(pad(strconv.FormatInt(int64(r), 16))))
			s.mark("&gt;</i>")
		}
		t = t[size:]
	}
}

// title writes text from a tree, which may be hostile, at a position of the page where HTML elements are not
// allowed, such as the title: invisible characters become Go escapes.
func (s *sheet) title(t string) {
	t = report.Printable(t)
	for t != "" {
		n := plain(t)
		s.raw(t[:n])
		if t = t[n:]; t == "" {
			return
		}
		r, size := utf8.DecodeRuneInString(t)
		switch r {
		case '<':
			s.mark("&lt;")
		case '>':
			s.mark("&gt;")
		case '&':
			s.mark("&amp;")
		default:
			s.raw(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		t = t[size:]
	}
}

func hexByte(b byte) string {
	const digits = "0123456789ABCDEF"
	return string([]byte{digits[b>>4], digits[b&15]})
}

func pad(digits string) string { return strings.Repeat("0", max(0, 4-len(digits))) + digits }

// plain returns the length of the prefix of t that can be written to HTML without an escape.
func plain(t string) int {
	for i := 0; i < len(t); {
		c := t[i]
		if c < utf8.RuneSelf {
			if c < 0x20 && c != '\t' || c == 0x7f || c == '<' || c == '>' || c == '&' {
				return i
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(t[i:])
		if r == utf8.RuneError && size == 1 || invisible(r) {
			return i
		}
		i += size
	}
	return len(t)
}

// invisible reports whether a character beyond ASCII is invisible or reorders others: controls,
// format characters except the joiners of scripts and emoji, line separators, fillers,
// variation selectors except those of emoji, and noncharacters.
func invisible(r rune) bool {
	switch {
	case r == 0x200c || r == 0x200d:
		return false
	case r < 0xa0, r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2028, r == 0x2029,
		r == 0x2065, r == 0x3164, r == 0xffa0, r >= 0xfe00 && r <= 0xfe0d, r >= 0xfdd0 && r <= 0xfdef, r&0xfffe == 0xfffe,
		r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return unicode.Is(unicode.Cf, r)
}

// spans writes a line of a file to the page, cut off at LineMax bytes. It writes the tags open and end around
// each of spans, the words that differ.
func (s *sheet) spans(line string, spans []words.Span, open, end markup) {
	cut := min(len(line), LineMax)
	for cut < len(line) && cut > LineMax-utf8.UTFMax && !utf8.RuneStart(line[cut]) {
		cut--
	}
	at := 0
	for _, x := range spans {
		if x.Start >= cut {
			break
		}
		s.text(line[at:x.Start])
		at = min(x.End, cut)
		s.mark(open)
		s.text(line[x.Start:at])
		s.mark(end)
	}
	s.text(line[at:cut])
	if cut < len(line) {
		s.mark("<em>… ")
		s.raw(thousands(len(line) - cut))
		s.mark(" more bytes in this line</em>")
	}
}

// name writes a file name or path to the page, cut off at nameMax bytes, with visible blanks at its ends.
func (s *sheet) name(t string) {
	if t == "" {
		s.mark("<i>empty</i>")
		return
	}
	rest := len(t)
	t = t[:min(len(t), nameMax)]
	rest -= len(t)
	inner := strings.TrimLeft(t, " ")
	lead := len(t) - len(inner)
	inner = strings.TrimRight(inner, " ")
	s.blanks(lead)
	// Tabs and line feeds in a name are shown, too.
	for part := range strings.SplitAfterSeq(inner, "\t") {
		before, tab := strings.CutSuffix(part, "\t")
		s.text(before)
		if tab {
			s.mark("<i>^I</i>")
		}
	}
	s.blanks(len(t) - lead - len(inner))
	if rest > 0 {
		s.mark("<em>… ")
		s.raw(thousands(rest))
		s.mark(" more bytes</em>")
	}
}

func (s *sheet) blanks(n int) {
	for range n {
		s.mark("<i>␠</i>")
	}
}

// thousands returns a number for the page, with its digits in groups of three, which people read more easily.
func thousands(n int) string {
	t := strconv.Itoa(n)
	for i := len(t) - 3; i > 0 && t[i-1] != '-'; i -= 3 {
		t = t[:i] + "," + t[i:]
	}
	return t
}

// many returns a number and a noun for the page, such as "3 files". one is the singular; the noun is in the
// plural unless n is 1.
func many(n int, one string) string {
	if n != 1 {
		one += "s"
	}
	return thousands(n) + " " + one
}
