//go:build linux

package overlay_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
)

// The first users of a state directory make its layout, each for itself, and one
// may be held up in the middle: nobody begins a life before all of it is there.
func TestNoLifeBeginsInHalfALayout(t *testing.T) {
	for _, missing := range []string{"forks", "layers", "tmp", "trash", "old"} {
		t.Run(missing, func(t *testing.T) {
			place := snapshottest.OnDisk(t)
			must(t, os.Mkdir(place.Dir, 0o700))
			must(t, os.WriteFile(filepath.Join(place.Dir, missing), nil, 0o600)) // cannot be made
			s := newStage(t, place)
			for range 2 { // the second is the one that finds what the first has made
				if got, err := s.Capture(t.Context(), place.Tree, "s1"); err == nil {
					t.Errorf("a snapshot is made without %s/: %+v", missing, got)
				}
			}
		})
	}
}
