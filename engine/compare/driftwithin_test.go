package compare

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// TestWhatHasNotDriftedOutsideTheWorkspaceNeedsNoComparison: of the paths that a sandbox has changed there, only those
// whose real file may have changed since the base are looked at.
func TestWhatHasNotDriftedOutsideTheWorkspaceNeedsNoComparison(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	earlier, later := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, c := range []struct {
		path   string
		named  bool
		frozen bool
		taken  time.Time
		may    bool
	}{
		{"file", false, false, earlier, true},
		{"file", false, true, earlier, true},
		{"file", false, false, later, false},
		{"dir", true, false, earlier, false},
		{"dir", false, false, earlier, true}, // its entries are not listed
		{"none", false, false, earlier, false},
		{"none", false, true, earlier, true}, // deleted since
	} {
		tree := catalog.Tree{Path: dir, Frozen: c.frozen, Taken: c.taken}
		if got := mayDrift(tree, snapshot.Candidate{Path: c.path, Named: c.named}, filepath.Join(dir, c.path)); got != c.may {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
