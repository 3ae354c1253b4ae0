package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinksLeadSomewhere: a link from one document to a file of the checkout
// names a file that is there.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	seen := 0
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
			for _, m := range link.FindAllStringSubmatch(string(text), -1) {
				seen++
				if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
					t.Errorf("%s: link to %s: %v", path, m[1], err)
				}
			}
		}
	}
	if seen == 0 {
		t.Fatal("no link in any document: this looked in the wrong place")
	}
}

// TestEveryBackendHasItsRule: the linter keeps each backend from all others,
// which it can only do by name.
func TestEveryBackendHasItsRule(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := os.ReadDir(filepath.Join(root, "backends"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d.IsDir() && d.Name() != "all" && !strings.Contains(string(rules), `"**/backends/`+d.Name()+`/**"`) {
			t.Errorf("backends/%s has no rule in .golangci.yml", d.Name())
		}
	}
}
