//go:build vm

package zfs_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/diff" //nolint:depguard // what is measured is what the engine does with the answer
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A walk of both trees reads the metadata of each file twice.
func TestListingChangesCostsLessThanWalkingBothTrees(t *testing.T) {
	for _, files := range []int{10_000, 50_000} {
		p, b := grove(t, files)
		s, f := grown(t, b, p)
		for i := range 100 {
			n := i * files / 100
			put(t, f.View.Path+"/d"+strconv.Itoa(n/500)+"/f"+strconv.Itoa(n), "x")
		}
		old, err := os.Open(s.View.Path)
		must(t, err)
		new, err := os.Open(f.View.Path)
		must(t, err)
		opt := diff.Options{SameInodes: true, OneFilesystem: true}
		found := func(n int, err error) error {
			if n != 100 {
				t.Errorf("%d changes", n)
			}
			return err
		}
		walk := func() error {
			c, err := diff.Trees(t.Context(), old, new, opt)
			return found(len(c), err)
		}
		places := 0
		var listing time.Duration
		tell := func() error {
			var touches []snapshot.Candidate
			listing = timed(t, func() error {
				for touch, err := range b.ListChanges(t.Context(), "s1", "f1") {
					must(t, err)
					touches = append(touches, touch)
				}
				return nil
			})
			places = len(touches)
			c, err := diff.At(t.Context(), old, new, touches, opt)
			return found(len(c), err)
		}
		must(t, walk())
		must(t, tell())
		var walked, telling []time.Duration
		for range 5 {
			walked = append(walked, timed(t, walk))
			telling = append(telling, timed(t, tell))
		}
		w, l := median(walked), median(telling)
		t.Logf("100 of %d files changed: walking both trees takes %v; telling %d places and comparing those %v, %.2f times that (telling alone: %v)",
			files, w, places, l, float64(l)/float64(w), listing)
		if l > w {
			t.Errorf("listing takes %.2f times as long as walking both trees", float64(l)/float64(w))
		}
		must(t, old.Close())
		must(t, new.Close())
		gone(t, b)
	}
}
