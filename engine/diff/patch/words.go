package patch

import (
	"strings"
	"unicode"
	"unicode/utf8"

	zdiff "znkr.io/diff"
)

// A word is a piece of a line: letters and digits, blanks, or one other character.
type word struct {
	text    string
	differs bool
}

// leastCommon is how much of lines, in percent of their letters, must be in both so
// that words are marked: where less is, all of it is new.
const leastCommon = 30

// differing takes lines that went and lines that came, each with its sign, into words
// and marks those that the other side has not. Nil: the lines have too
// little in common, or nothing to be compared with.
func differing(went, came []string) (a, b [][]word) {
	if len(went) == 0 || len(came) == 0 {
		return nil, nil
	}
	x, y := split(went), split(came)
	old, new := texts(x), texts(y)
	marks := [2][]bool{make([]bool, len(old)), make([]bool, len(new))}
	i, j, common, all := 0, 0, 0, 0
	for _, e := range zdiff.Edits(old, new) {
		switch e.Op {
		case zdiff.Match:
			common += weight(old[i])
			all += weight(old[i])
			i, j = i+1, j+1
		case zdiff.Delete:
			all += weight(old[i])
			marks[0][i] = true
			i++
		case zdiff.Insert:
			marks[1][j] = true
			j++
		}
	}
	if all == 0 || common*100 < all*leastCommon {
		return nil, nil
	}
	return marked(x, marks[0]), marked(y, marks[1])
}

// weight is what a word counts for: blanks and signs say little.
func weight(text string) int {
	if c, _ := utf8.DecodeRuneInString(text); unicode.IsLetter(c) || unicode.IsDigit(c) {
		return len(text)
	}
	return 0
}

// split takes lines apart; the end of each is a word, too.
func split(lines []string) [][]string {
	all := make([][]string, len(lines))
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "\n")
		all[i] = wordsOf(line[1:])
	}
	return all
}

func wordsOf(line string) (words []string) {
	for len(line) > 0 {
		first, n := utf8.DecodeRuneInString(line)
		kind := kindOf(first)
		for kind != other && n < len(line) {
			c, size := utf8.DecodeRuneInString(line[n:])
			if kindOf(c) != kind {
				break
			}
			n += size
		}
		words = append(words, line[:n])
		line = line[n:]
	}
	return words
}

type kind int

const (
	other kind = iota
	letters
	blanks
)

func kindOf(c rune) kind {
	switch {
	case c == '_', unicode.IsLetter(c), unicode.IsDigit(c), unicode.IsMark(c):
		return letters
	case c == ' ', c == '\t':
		return blanks
	}
	return other
}

// texts puts the words of all lines in a row, with the ends of lines.
func texts(lines [][]string) (all []string) {
	for _, words := range lines {
		all = append(append(all, words...), "\n")
	}
	return all
}

// marked takes the row apart again. Blanks between two words that differ differ
// too: one long mark reads better than many short ones.
func marked(lines [][]string, marks []bool) [][]word {
	all := make([][]word, len(lines))
	for i, words := range lines {
		for n, text := range words {
			between := n > 0 && n+1 < len(words) && marks[n-1] && marks[n+1] && kindOf(rune(text[0])) == blanks
			all[i] = append(all[i], word{text, marks[n] || between})
		}
		marks = marks[len(words)+1:]
	}
	return all
}
