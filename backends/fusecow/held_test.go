//go:build linux

package fusecow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestAMergedLayerSharesItsContent: once Seal has merged the layers of a fork, its old snapshots alone have the content
// that was overwritten since. What the fork or another one still needs is not theirs, though their layers name it.
func TestAMergedLayerSharesItsContent(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	const (
		n    = 34 // Seal merges at 32
		size = 512 << 10
	)
	l := &lineage{TB: t, place: snapshottest.OnDisk(t)}
	l.open()
	_, err := l.Capture(t.Context(), l.place.Tree, "base")
	l.must(err)
	_, err = l.Fork(t.Context(), "base", "f")
	l.must(err)
	var ids []snapshot.ID
	l.in("f", func(dir string) {
		l.write(dir+"/stays", strings.Repeat("s", size))
		for i := 1; i <= n; i++ {
			l.write(dir+"/each", strings.Repeat(fmt.Sprint(i%10), size))
			l.seal(t, i, snapshot.InUse)
			ids = append(ids, snapshot.ID(fmt.Sprintf("s%d", i)))
		}
	})
	m, ok := l.powers.(snapshot.Meter)
	if !ok {
		t.Fatal("the backend is no Meter")
	}
	held := func() []snapshot.Bytes {
		held, err := m.MeasureExclusive(t.Context(), ids)
		l.must(err)
		return held
	}
	all := held()
	// The newest content of the merged layers stays, and so does that of the layers above.
	if files := float64(all[0]) / size; files < 31 || files > 33 {
		t.Errorf("the snapshots hold the content of %.1f files, want that of the 31 that Seal merged and nothing else has", files)
	}
	if all[n-1] != 0 {
		t.Errorf("the newest snapshot holds %v, and the fork has all of it", all[n-1])
	}
	_, err = l.Fork(t.Context(), "s10", "other")
	l.must(err)
	if less := float64(all[0]-held()[0]) / size; less < 10 || less > 12 {
		t.Errorf("with a fork of the tenth snapshot, the snapshots hold the content of %.1f files less, want 10", less)
	}
}
