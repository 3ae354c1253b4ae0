//go:build linux

package overlay_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
)

// Each of the first users of a state directory makes its layout, and one may be stopped halfway: no
// snapshot is made before the layout is complete.
func TestNoSnapshotIsMadeInAnIncompleteLayout(t *testing.T) {
	for _, missing := range []string{"forks", "layers", "tmp", "trash", "old"} {
		t.Run(missing, func(t *testing.T) {
			place := snapshottest.OnDisk(t)
			must(t, os.Mkdir(place.Dir, 0o700))
			must(t, os.WriteFile(filepath.Join(place.Dir, missing), nil, 0o600)) // cannot be made
			s := newFixture(t, place)
			for range 2 { // the second call finds the directories of the first
				if got, err := s.Capture(t.Context(), place.Tree, "s1"); err == nil {
					t.Errorf("a snapshot is made without %s/: %+v", missing, got)
				}
			}
		})
	}
}
