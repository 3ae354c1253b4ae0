package diff_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
)

// Less orders paths by their elements, whatever bytes the names have.
func TestLessComparesElements(t *testing.T) {
	byElements := func(a, b string) bool {
		x, y := strings.Split(a, "/"), strings.Split(b, "/")
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				return x[i] < y[i]
			}
		}
		return len(x) < len(y)
	}
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
		if a != "." && b != "." && diff.Less(a, b) != byElements(a, b) {
			t.Fatalf("Less(%q, %q) is %v", a, b, diff.Less(a, b))
		}
	}
}
