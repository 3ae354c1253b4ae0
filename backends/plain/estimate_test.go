package plain_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// Estimate counts a file with two hard links once, and leaves out the copies inside the tree.
func TestWeighPredictsTheSizeOfACopy(t *testing.T) {
	b, place := open(t)
	write(t, filepath.Join(place.Tree.Path, "dir/file"), string(make([]byte, 1<<20)))
	must(t, os.Link(filepath.Join(place.Tree.Path, "dir/file"), filepath.Join(place.Tree.Path, "link")))
	weigher, ok := b.(snapshot.Estimator)
	if !ok {
		t.Fatal("the backend is no Weigher")
	}
	w, err := weigher.Estimate(t.Context(), place.Tree)
	must(t, err)
	s, err := b.Capture(t.Context(), place.Tree, "s1")
	must(t, err)
	of, err := weigher.Estimate(t.Context(), snapshot.Tree{Path: s.View.Path})
	must(t, err)
	if w.Files != of.Files || w.Bytes != of.Bytes || w.Bytes < 1<<20 || w.Bytes > 2<<20 {
		t.Errorf("Weigh returns %+v for a copy of %+v", w, of)
	}
}
