package words_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine/diff/words"
)

// marked writes a line with brackets around its spans.
func marked(line string, spans []words.Span) string {
	for _, s := range slices.Backward(spans) {
		line = line[:s.Start] + "[" + line[s.Start:s.End] + "]" + line[s.End:]
	}
	return line
}

func TestChangedWordsOfALineAreMarked(t *testing.T) {
	for _, c := range []struct{ old, new, gone, came string }{
		{"port = 80", "port = 8080", "port = [80]", "port = [8080]"},
		{"a(b, c)", "a(b)", "a(b[, c])", "a(b)"},
		{"return x", "return x, nil", "return x", "return x[, nil]"},
		{"foo_bar := 1", "foo_baz := 1", "[foo_bar] := 1", "[foo_baz] := 1"},
		{"keep one two keep", "keep three four keep", "keep [one two] keep", "keep [three four] keep"},
		{"größe 1 m", "größe 2 m", "größe [1] m", "größe [2] m"},
		{"nothing in common", "entirely other words", "nothing in common", "entirely other words"},
		{"same", "same", "same", "same"},
		{"  indent", "\tindent", "[  ]indent", "[\t]indent"},
		{"", "new", "", "new"},
		{"byte \xff here", "byte \xfe here", "byte [\xff] here", "byte [\xfe] here"},
	} {
		gone, came := words.Changed(c.old, c.new)
		if g, n := marked(c.old, gone), marked(c.new, came); g != c.gone || n != c.came {
			t.Errorf("%q to %q: %q and %q, want %q and %q", c.old, c.new, g, n, c.gone, c.came)
		}
	}
}

func TestUnmarkedTextIsEqualOnBothSides(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 1))
	line := func() string {
		var b strings.Builder
		for range r.IntN(12) {
			b.WriteString([]string{"one", "two", " ", ", ", "(", "é", "e\u0301", "+\u0301", "\xff", "\u202e"}[r.IntN(10)])
		}
		return b.String()
	}
	rest := func(s string, spans []words.Span) string {
		for _, x := range slices.Backward(spans) {
			if utf8.ValidString(s) && (!utf8.ValidString(s[:x.Start]) || !utf8.ValidString(s[x.Start:x.End])) {
				t.Errorf("%q is cut within a character", s)
			}
			s = s[:x.Start] + s[x.End:]
		}
		return strings.Join(strings.Fields(s), "")
	}
	marks := 0
	for range 20_000 {
		a, b := line(), line()
		gone, came := words.Changed(a, b)
		if gone == nil && came == nil {
			continue
		}
		marks++
		if x, y := rest(a, gone), rest(b, came); x != y {
			t.Fatalf("seed %d: %q to %q leaves %q and %q", seed, a, b, x, y)
		}
	}
	if marks < 1000 {
		t.Errorf("only %d pairs were marked", marks)
	}
}

func TestLongLinesAreNotCompared(t *testing.T) {
	long := strings.Repeat("x ", words.Max)
	if gone, came := words.Changed(long, long+"y"); gone != nil || came != nil {
		t.Error("a line beyond Max was compared")
	}
}
