package diff_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
)

// ComparePaths orders paths by their elements, whatever bytes the names have.
func TestPathsAreComparedByElements(t *testing.T) {
	byElements := func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }
	r := rand.New(rand.NewPCG(1, 2))
	path := func() string {
		b := []byte(strings.Repeat("same/", r.IntN(30)) + "a")
		for range r.IntN(6) {
			b = append(b, "/a\x01.0\xff"[r.IntN(6)])
		}
		return strings.ReplaceAll(strings.Trim(string(b), "/"), "//", "/")
	}
	for range 20000 {
		a, b := path(), path()
		if a != "." && b != "." && diff.ComparePaths(a, b) != byElements(a, b) {
			t.Fatalf("ComparePaths(%q, %q) is %d", a, b, diff.ComparePaths(a, b))
		}
	}
}
