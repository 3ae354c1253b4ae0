package serve

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A result has at most headMost bytes from the beginning of each text and tailMost from its end: with both streams of
// a command less than 25,000 tokens, even at one token a byte.
const (
	headMost = 4 << 10
	tailMost = 6 << 10
)

// A Text is a text of any length, bounded for a result.
type Text struct {
	Text    string `json:"text" jsonschema:"all of it, or its beginning if left_out is not 0"`
	Tail    string `json:"tail,omitempty" jsonschema:"its end, if left_out is not 0"`
	Bytes   int64  `json:"bytes" jsonschema:"the length of the whole"`
	LeftOut int64  `json:"left_out" jsonschema:"how many bytes between text and tail are left out"`
}

// A clip is a writer that keeps the beginning and the end of its input. It is safe for concurrent use.
type clip struct {
	head, tail int // the bounds
	mu         sync.Mutex
	first      []byte
	last       []byte
	n          int64
}

func newClip() *clip { return &clip{head: headMost, tail: tailMost} }

// Write never fails.
func (c *clip) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(len(p))
	rest := p
	if room := c.head - len(c.first); room > 0 {
		n := min(room, len(rest))
		c.first, rest = append(c.first, rest[:n]...), rest[n:]
	}
	c.last = append(c.last, rest[max(0, len(rest)-c.tail):]...)
	if over := len(c.last) - c.tail; over > 0 {
		c.last = append(c.last[:0], c.last[over:]...)
	}
	return len(p), nil
}

// text returns the input so far.
func (c *clip) text() Text {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := Text{Bytes: c.n, LeftOut: c.n - int64(len(c.first)+len(c.last))}
	if t.LeftOut == 0 {
		t.Text = tame(string(c.first) + string(c.last))
		return t
	}
	first, last := c.first, c.last
	first = wholeRunes(first)
	t.LeftOut += int64(len(c.first) - len(first))
	for i := 0; i < utf8.UTFMax && len(last) > 0 && !utf8.RuneStart(last[0]); i++ {
		last = last[1:]
		t.LeftOut++
	}
	t.Text, t.Tail = tame(string(first)), tame(string(last))
	return t
}

// wholeRunes returns b without the beginning of a character at its end, of which the rest is missing. Bytes that are no
// text stay.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if at := len(b) - i; utf8.RuneStart(b[at]) {
			if utf8.FullRune(b[at:]) {
				return b
			}
			return b[:at]
		}
	}
	return b
}

// tame replaces bytes that are no text: a control character takes six bytes as JSON, and no model reads it.
func tame(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// count returns a number and a noun, in the plural unless the number is one.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// splitAt splits SANDBOX@CHECKPOINT.
func splitAt(s string) (name, state string) {
	name, state, _ = strings.Cut(s, "@")
	return name, state
}
