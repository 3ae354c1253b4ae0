package broker

import (
	"bytes"
	"io"
	"slices"
)

// A pair is a text to search for in a message, such as a secret, and its replacement, such as the secret's
// placeholder.
type pair struct {
	from, to []byte
	// of is the secret of which from is a form; nil for a text that the sender of the message has received anyway.
	of *secret
}

// sortPairs sorts the pairs by the length of the text to replace, longest first, so that a text that contains
// another one is replaced as a whole. It sorts in place.
func sortPairs(all []pair) []pair {
	slices.SortStableFunc(all, func(a, b pair) int { return len(b.from) - len(a.from) })
	return all
}

// replaceAll returns text with the text of every pair replaced, such as each secret by its placeholder.
func replaceAll(text []byte, pairs []pair) []byte {
	for _, p := range pairs {
		if bytes.Contains(text, p.from) {
			text = bytes.ReplaceAll(text, p.from, p.to)
		}
	}
	return text
}

// replaceText is replaceAll for short texts in which a match is rare, such as headers of a response. Without a match
// it allocates nothing for a text of at most 128 bytes. pairs are sorted by sortPairs.
func replaceText(text string, pairs []pair) string {
	if len(pairs) == 0 || len(text) < len(pairs[len(pairs)-1].from) { // the shortest
		return text
	}
	var room [128]byte // most headers fit, and need no allocation
	b := append(room[:0], text...)
	if slices.ContainsFunc(pairs, func(p pair) bool { return bytes.Contains(b, p.from) }) {
		return string(replaceAll([]byte(text), pairs))
	}
	return text
}

// A redactor is a reader that replaces texts, such as secrets, in a stream. It delays only bytes that may be
// the start of such a text.
type redactor struct {
	from  io.Reader
	pairs []pair // longest first
	// got reports whether the sender of the message may have received a secret; nil if it has received all. Only then
	// bytes that may be the start of the secret wait for the next ones. From another sender, the delay would confirm
	// to a process in the sandbox that it has guessed the start of the secret, one character after the other.
	got   func(*secret) bool
	first [256]bool
	in    []byte // not yet searched, or held back
	out   []byte // replaced, not yet read
	buf   []byte
	err   error
}

// newRedactor returns a reader of from in which the texts of pairs, sorted by sortPairs, are replaced. It reads size
// bytes at once.
func newRedactor(from io.Reader, pairs []pair, size int64) *redactor {
	r := &redactor{from: from, pairs: pairs, buf: make([]byte, size)}
	for _, p := range pairs {
		r.first[p.from[0]] = true
	}
	return r
}

func (r *redactor) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		n, err := r.from.Read(r.buf)
		r.in = append(r.in, r.buf[:n]...)
		r.err = err
		r.out = r.search(r.out[:0], err != nil)
	}
	n := copy(p, r.out)
	if r.out = r.out[n:]; len(r.out) == 0 {
		return n, r.err
	}
	return n, nil
}

// search moves bytes from r.in to out, with texts replaced, up to the first that may be the start of a text
// to replace. end is set if no more bytes follow.
func (r *redactor) search(out []byte, end bool) []byte {
	at, done := 0, 0
	for at < len(r.in) {
		if !r.first[r.in[at]] {
			at++
			continue
		}
		to, length, begins := r.match(r.in[at:], end)
		if begins {
			break
		}
		if length == 0 {
			at++
			continue
		}
		out = append(append(out, r.in[done:at]...), to...)
		at += length
		done = at
	}
	out = append(out, r.in[done:at]...)
	r.in = append(r.in[:0], r.in[at:]...)
	return out
}

// match returns the replacement and the length of the longest of the texts to replace with which b begins. begins is
// set if b is only the start of a longer one that the sender may have received, and more may follow: not at the end of
// the stream.
func (r *redactor) match(b []byte, end bool) (to []byte, length int, begins bool) {
	for _, p := range r.pairs {
		switch {
		case bytes.HasPrefix(b, p.from):
			return p.to, len(p.from), false
		case !end && len(b) < len(p.from) && bytes.HasPrefix(p.from, b) && (p.of == nil || r.got == nil || r.got(p.of)):
			return nil, 0, true
		}
	}
	return nil, 0, false
}
