package promote

import (
	"math/rand/v2"
	"path"
	"strings"
	"testing"
)

// What a finder says of one path after the other is what the rules say of each.
func TestAFinderSaysWhatTheRulesSay(t *testing.T) {
	elements := []string{"a", "x.git", "HEAD", "head", "src", ".CONFIG", "home"}
	for _, place := range Places() {
		for _, pattern := range place.Patterns {
			for e := range strings.SplitSeq(strings.Trim(pattern, "/"), "/") {
				elements = append(elements, strings.ReplaceAll(e, "*", "x"))
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	all, held, plain := heldRules(), 0, 0
	f := finder{rules: all}
	for range 20_000 {
		dir := "/"
		for range r.IntN(5) {
			dir = path.Join(dir, elements[r.IntN(min(len(elements), 1<<(1+r.IntN(12))))])
		}
		for range 1 + r.IntN(3) {
			abs, link := path.Join(dir, elements[r.IntN(len(elements))]), r.IntN(2) == 0
			why, depth := all.find(abs, link)
			if got, at := f.find(abs, link); got != why || at != depth {
				t.Fatalf("%s (a link: %t): %q, %d, and the rules say %q, %d", abs, link, got, at, why, depth)
			}
			if why != "" {
				held++
			}
			if f.isPlain {
				plain++
			}
		}
	}
	if held < 1000 || plain < 1000 {
		t.Errorf("%d paths are held back and %d lie in plain directories: too few to say anything", held, plain)
	}
}
