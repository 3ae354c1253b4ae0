package serve

import (
	"strings"
	"testing"
)

// TestAClippedTextEndsAtACharacter: however the bound lies in a character, no part of one is left.
func TestAClippedTextEndsAtACharacter(t *testing.T) {
	for _, character := range []string{"x", "é", "語", "😀"} {
		for shift := range 4 {
			whole := strings.Repeat("x", shift) + strings.Repeat(character, headMost+tailMost)
			c := newClip()
			c.Write([]byte(whole)) //nolint:errcheck // it never fails
			got := c.text()
			if strings.Contains(got.Text+got.Tail, "?") || !strings.HasPrefix(whole, got.Text) || !strings.HasSuffix(whole, got.Tail) {
				t.Errorf("%s after %d: ends with %q, begins with %q", character, shift, got.Text[len(got.Text)-4:], got.Tail[:4])
			}
			if n := int64(len(got.Text) + len(got.Tail)); got.Bytes != int64(len(whole)) || n+got.LeftOut != got.Bytes {
				t.Errorf("%s after %d: %d bytes and %d left out of %d", character, shift, n, got.LeftOut, got.Bytes)
			}
		}
	}
}

func TestWholeRunesKeepsWhatIsNoText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "é": "é", "a\xc3": "a", "語": "語", "\xe8\xaa": "", "x\xf0\x9f\x98": "x", "\xff": "\xff", "a\x80\x80\x80\x80": "a\x80\x80\x80\x80",
	} {
		if got := string(wholeRunes([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
