package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// What a sandbox holds is hostile: a name or a line of text may hold sequences
// that control a terminal. tame removes them all.

// tame returns a line of text in which every control character is made visible, so that text from a sandbox
// cannot change the terminal.
func tame(s string) string {
	var b strings.Builder
	t := tamer{w: &b}
	t.Write([]byte(s)) //nolint:errcheck // a Builder takes everything
	for _, c := range t.rest {
		fmt.Fprintf(&b, "<%02X>", c) // the beginning of a rune that does not end
	}
	return b.String()
}

// A tamer is a writer that makes every control character except tab and newline visible, for output from a
// sandbox, which is not trusted. It writes an ASCII one as ^X, any other (also overrides of the writing
// direction) as <U+XXXX>, and bytes that are not UTF-8 as <XX>.
type tamer struct {
	w    io.Writer
	rest []byte
}

func (t *tamer) Write(p []byte) (int, error) {
	in := append(t.rest, p...)
	out := make([]byte, 0, len(in))
	for len(in) > 0 && utf8.FullRune(in) {
		c, size := utf8.DecodeRune(in)
		switch {
		case c == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, "<%02X>", in[0])
		case c == '\n' || c == '\t' || !hostile(c):
			out = append(out, in[:size]...)
		case c < 0x80:
			out = append(out, '^', byte(c)^0x40)
		default:
			out = fmt.Appendf(out, "<U+%04X>", c)
		}
		in = in[size:]
	}
	t.rest = append([]byte(nil), in...)
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// hostile reports whether the character c must not be printed on a terminal: a control
// character, or one that hides text or reverses the writing direction. The joiners of scripts
// and emoji (U+200C, U+200D) are harmless.
func hostile(c rune) bool {
	switch {
	case c < 0x20, c >= 0x7f && c < 0xa0, c == 0xad, c == 0x61c, c == 0x180e, c == 0x200b, c == 0x200e, c == 0x200f,
		c >= 0x2028 && c <= 0x202e, c >= 0x2060 && c <= 0x206f, c == 0xfeff, c >= 0xfff9 && c <= 0xfffb, c >= 0xe0000 && c <= 0xe007f:
		return true
	}
	return false
}
