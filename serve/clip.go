package serve

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A reply to an agent holds at most headMost bytes from the beginning of each text and tailMost from its end.
// Both streams of a command then take less than 25,000 tokens of a model, even at one token a byte.
const (
	headMost = 4 << 10
	tailMost = 6 << 10
)

// A Text is a text such as a command's output, shortened for the reply to a coding agent: its middle is left
// out if it is long.
type Text struct {
	Text    string `json:"text" jsonschema:"all of it, or its beginning if left_out is not 0"`
	Tail    string `json:"tail,omitempty" jsonschema:"its end, if left_out is not 0"`
	Bytes   int64  `json:"bytes" jsonschema:"the length of the whole"`
	LeftOut int64  `json:"left_out" jsonschema:"how many bytes between text and tail are left out"`
}

// A clip is an io.Writer that stores only the beginning and the end of its input, for the reply to an agent.
// It is safe for concurrent use.
type clip struct {
	head, tail int // the bounds
	mu         sync.Mutex
	first      []byte
	last       []byte
	n          int64
}

func newClip() *clip { return &clip{head: headMost, tail: tailMost} }

// Write adds p to the input of the clip, which stores only the beginning and the end of all its input. It
// never fails.
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

// text returns the beginning and the end of the output that was written to the clip so far, and how many
// bytes between them are left out.
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

// wholeRunes returns b, the beginning of a command's output, without an incomplete UTF-8 character at its
// end. Bytes that are no valid UTF-8 stay.
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

// tame prepares a text for the reply to an agent: it replaces control characters and invalid UTF-8 in s by
// question marks, except newlines and tabs. As JSON a control character takes six bytes, and no model reads
// it.
func tame(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// count returns a number and a noun as text, such as "2 sandboxes", in the plural (with an s) unless the
// number is one.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// splitAt splits a reference SANDBOX@CHECKPOINT into the two names. state is "" if there is no checkpoint.
func splitAt(s string) (name, state string) {
	name, state, _ = strings.Cut(s, "@")
	return name, state
}
