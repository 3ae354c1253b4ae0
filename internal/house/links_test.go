package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// TestEveryPackageHasItsRule: the linter keeps each package from those above it, which it can
// only do by name. A package in a folder with a rule for all of it needs none.
func TestEveryPackageHasItsRule(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for path := range goFiles(t) {
		name, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		rooms := strings.Split(name, "/")
		if seen[name] || len(rooms) < 2 || !slices.Contains([]string{"engine", "workflow", "backends", "isolate", "network", "internal"}, rooms[0]) {
			continue
		}
		seen[name] = true
		found := strings.Contains(string(rules), `"**/`+name+`/*.go"`)
		for n := len(rooms); n > 1 && !found; n-- {
			found = strings.Contains(string(rules), `"**/`+strings.Join(rooms[:n], "/")+`/**"`)
		}
		if !found {
			t.Errorf("%s has no rule in .golangci.yml: list what it may import", name)
		}
	}
}
