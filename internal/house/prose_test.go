package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestProseFitsTheScreen: a line of prose in a document has at most 120
// characters, generated pages among them. Two kinds of line may be longer: a row
// of a table, which Markdown cannot wrap, and a line of code, which shows a
// command or its output as it is.
func TestProseFitsTheScreen(t *testing.T) {
	const most = 120
	pages := 0
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			fenced := false
			for i, line := range strings.Split(string(text), "\n") {
				if strings.HasPrefix(line, "```") {
					fenced = !fenced
				}
				switch {
				case fenced, strings.HasPrefix(line, "    "), strings.HasPrefix(line, "|"):
				case utf8.RuneCountInString(line) > most:
					t.Errorf("%s:%d: %d characters, at most %d", path, i+1, utf8.RuneCountInString(line), most)
				}
			}
		}
	}
	if pages < 10 {
		t.Fatalf("only %d documents beneath %s: this looked in the wrong place", pages, root)
	}
}
