package approval

import (
	"math/rand/v2"
	"path"
	"strings"
	"testing"
)

// A finder that looks up many paths returns the same as the index does for each.
func TestFinderAgreesWithIndex(t *testing.T) {
	elements := []string{"a", "x.git", "HEAD", "head", "src", ".CONFIG", "home", "vendor", ".vim", "node_modules"}
	for _, rule := range Rules() {
		for _, pattern := range rule.Patterns {
			for e := range strings.SplitSeq(strings.Trim(pattern, "/"), "/") {
				elements = append(elements, strings.ReplaceAll(e, "*", "x"))
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	matched, ordinary := 0, 0
	f, last := finder{index: patterns()}, "/"
	for range 20_000 {
		dir := "/"
		if r.IntN(2) == 0 && strings.Count(last, "/") < 12 {
			dir = last // go on below the directory before
		}
		for range r.IntN(5) {
			dir = path.Join(dir, elements[r.IntN(min(len(elements), 1<<(1+r.IntN(12))))])
		}
		for range 1 + r.IntN(3) {
			abs, link := path.Join(dir, elements[r.IntN(len(elements))]), r.IntN(2) == 0
			dir, _ := path.Split(abs)
			last = path.Clean(dir)
			why, depth := slowly(abs, link)
			if got, at := f.find(abs, link); got != why || at != depth {
				t.Fatalf("%s (a link: %t): %q, %d, and the index says %q, %d", abs, link, got, at, why, depth)
			}
			if why != "" {
				matched++
			}
			if f.inOrdinary {
				ordinary++
			}
		}
	}
	if matched < 1000 || ordinary < 1000 {
		t.Errorf("only %d paths match and only %d are in ordinary directories", matched, ordinary)
	}
}

// slowly returns what a finder finds for a path, without any memory of other paths.
func slowly(abs string, link bool) (why string, depth int) {
	dirs := strings.Split(path.Dir(abs), "/")
	for i, element := range dirs {
		if isPackageDir(element) {
			if why, depth = patterns().find(strings.Join(dirs[:i], "/")+"/", false); why == "" {
				why, depth = inPackages().find(abs, link)
			}
			return why, depth
		}
	}
	return patterns().find(abs, link)
}
