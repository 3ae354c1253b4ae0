// Package words finds the words of a line that were removed and added.
//
// The result is for display, on a terminal or a page. No patch depends on it.
package words

import (
	"strings"
	"unicode"
	"unicode/utf8"

	zdiff "znkr.io/diff"
)

// Max is the maximum length in bytes of a line whose words are compared. Comparing longer ones takes too long, so
// they get no marks.
const Max = 4096

// alike says how much of two lines must be equal for their differing words to be marked: the alike-th part of
// the longer line, a fourth. With less in common, marks do not help the reader.
const alike = 4

// A Span is the bytes [Start, End) of a line: one or more consecutive words that differ from another line.
type Span struct{ Start, End int }

// Changed compares two lines by words. It returns the spans of old that are not in new, and those of new that
// are not in old, in order. Words and runs of blanks are never split, and spans with only blanks between them
// are joined. Both results are nil if the lines have too little in common, are equal, or one is longer than
// Max. Cost: a diff of the lines' words.
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

// grow appends the bytes from start to end of line, words that differ, as a span to spans. If only blanks are
// between, it extends the last span instead.
func grow(spans []Span, line string, start, end int) []Span {
	if last := len(spans) - 1; last >= 0 && strings.TrimSpace(line[spans[last].End:start]) == "" {
		spans[last].End = end
		return spans
	}
	return append(spans, Span{start, end})
}

// inked returns the number of bytes of a line that are not blanks, by which the share of equal words is
// measured.
func inked(line string) (n int) {
	for _, f := range strings.Fields(line) {
		n += len(f)
	}
	return n
}

// split splits a line into words, runs of blanks, and single other characters. Bytes that are
// not UTF-8 are parts of words, so that no span splits a character.
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
			// A combining character stays with its base.
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
