package relay

import (
	"os"
	"strings"
	"testing"
)

// TestTheScreenIsResetOnlyAfterControlSequences: text, also in other alphabets, is followed by
// nothing; what hides text, scrolls one line or moves to another screen is undone.
func TestTheScreenIsResetOnlyAfterControlSequences(t *testing.T) {
	for out, want := range map[string][]string{
		"plain\r\ntext\tand \a\b":   nil,
		"Stra\u00dfe \u4e2d":        nil,
		"\u2013 \u201cquoted\u201d": nil,
		"\u009b?6h":                 {"\x1b[?6l"},
		"\x1b[8mhidden":             {"\x1b[m"},
		"\x1b[1;1r":                 {"\x1b7\x1b[r\x1b8"},
		"\x1b(0":                    {"\x1b(B"},
		"\x0e":                      {"\x0f"},
		"\x1b[?1049h":               {"\x1b7\x1b[?1049l"},
		"\x1b[?25l":                 {"\x1b[?25h"},
		"\x1b[?1000;1006h":          {"1000;", ";1006;"},
		"\x1b[?2004h":               {";2004;"},
		"\x1b]0;title":              {"\x1b\\", "\x1b]8;;"},
		"\x1b[?3;6h":                {"\x1b[?6l\x1b[999;1H"},
		"\x1b[?" + "006" + "h":      {"\x1b[?6l"},
		"\x1b[>1u":                  {"\x1b[<99u"},
		"\x1b[>4;2m":                {"\x1b[>4m"},
		"\x1b[5 q":                  {"\x1b[0 q"},
		"\x9b?6h":                   {"\x1b[?6l"},
	} {
		for _, cut := range []int{0, 1, len(out) / 2} {
			var p parser
			p.note([]byte(out[:cut]))
			p.note([]byte(out[cut:]))
			got := p.reset()
			if want == nil && got != "" {
				t.Errorf("%q is followed by %q", out, got)
			}
			for _, w := range want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is followed by %q, without %q", out, got, w)
				}
			}
		}
	}
	var p parser
	p.note([]byte("\x1b[31mred\x1b[m"))
	if got := p.reset(); strings.Contains(got, "999") {
		t.Errorf("colours move the cursor: %q", got)
	}
}

// TestAScreenKeepsTheEndOfTheOutput writes pieces of many sizes.
func TestAScreenKeepsTheEndOfTheOutput(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s, all := NewScreen(null), ""
	if got := s.Tail(); got != "" {
		t.Errorf("the tail of no output is %q", got)
	}
	for i, size := range []int{1, 10, 4000, 80, 4096, 5, 9000, 0, 3, 4095, 4097, 1} {
		piece := strings.Repeat(string(rune('a'+i)), size)
		if all += piece; len(all) > tailSize {
			all = all[len(all)-tailSize:]
		}
		if n, err := s.Write([]byte(piece)); n != size || err != nil {
			t.Fatal(n, err)
		}
		if got := s.Tail(); got != all {
			t.Errorf("after %d bytes more, the tail has %d bytes, want %d", size, len(got), len(all))
		}
	}
}
