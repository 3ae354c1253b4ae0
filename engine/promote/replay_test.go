package promote_test

import (
	"testing"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestReplayAppliesChanges(t *testing.T) {
	treetest.NeedRoot(t)
	for seed := range uint64(treetest.Budget(t, 8, 25)) {
		writer := treetest.NewWriter(seed, treetest.Powers{Root: true})
		w := newWorld(t, treetest.Dir(t), writer.Script(40), writer.Script(40))
		if err := promote.Replay(t.Context(), w.real, w.source(), w.changes(t, w.frozen())); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		treetest.Compare(t, w.sandbox, w.real, treetest.Options{NoDirTimes: true, NoLinks: true}) // see package diff for the links it cannot see
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
