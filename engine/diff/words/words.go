// Package words finds what differs within a line: which words of an old one
// went, and which of a new one came.
//
// It is for the eyes alone, on a terminal or a page. No patch depends on it.
package words

import (
	"strings"
	"unicode"
	"unicode/utf8"

	zdiff "znkr.io/diff"
)

// Max is the length, in bytes, up to which lines are compared.
const Max = 4096

// alike is the part of the longer line, one in so many, that must be the same
// for the rest to be worth marking.
const alike = 4

// A Span is the bytes from Start up to End of a line.
type Span struct{ Start, End int }

// Changed gives what of the line old is not in new, and what of new is not in
// old, in order. Words, blanks and other characters are whole; changes that only
// blanks part are one. Both are nil where the lines have too little in common,
// are equal, or one is longer than Max: then the whole line is what changed.
// Cost: that of comparing as many words as the lines have.
func Changed(old, new string) (gone, came []Span) {
	if len(old) > Max || len(new) > Max || old == new {
		return nil, nil
	}
	a, b := split(old), split(new)
	same, atA, atB := 0, 0, 0
	for _, e := range zdiff.Edits(a, b) {
		switch e.Op {
		case zdiff.Match:
			if strings.TrimSpace(e.X) != "" {
				same += len(e.X)
			}
			atA, atB = atA+len(e.X), atB+len(e.Y)
		case zdiff.Delete:
			gone = grow(gone, old, atA, atA+len(e.X))
			atA += len(e.X)
		case zdiff.Insert:
			came = grow(came, new, atB, atB+len(e.Y))
			atB += len(e.Y)
		}
	}
	if same*alike < max(inked(old), inked(new)) {
		return nil, nil
	}
	return gone, came
}

// grow adds a span, to the last one where nothing but blanks is between them.
func grow(spans []Span, line string, start, end int) []Span {
	if last := len(spans) - 1; last >= 0 && strings.TrimSpace(line[spans[last].End:start]) == "" {
		spans[last].End = end
		return spans
	}
	return append(spans, Span{start, end})
}

// inked is the number of bytes that are no blanks.
func inked(line string) (n int) {
	for _, f := range strings.Fields(line) {
		n += len(f)
	}
	return n
}

// split cuts a line into words, runs of blanks, and all else one by one. Bytes
// that are not UTF-8 are parts of words: what is marked is never half a
// character.
func split(line string) (words []string) {
	for len(line) > 0 {
		first, n := utf8.DecodeRuneInString(line)
		if k := kindOf(first); k != other {
			for n < len(line) {
				r, size := utf8.DecodeRuneInString(line[n:])
				if kindOf(r) != k {
					break
				}
				n += size
			}
		} else {
			// What combines with a character stays with it.
			for n < len(line) {
				r, size := utf8.DecodeRuneInString(line[n:])
				if !unicode.Is(unicode.Mn, r) {
					break
				}
				n += size
			}
		}
		words, line = append(words, line[:n]), line[n:]
	}
	return words
}

const (
	other = iota
	word
	blank
)

func kindOf(r rune) int {
	switch {
	case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r) || r == utf8.RuneError:
		return word
	case unicode.IsSpace(r):
		return blank
	}
	return other
}
