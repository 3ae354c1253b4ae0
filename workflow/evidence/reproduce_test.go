package evidence

import (
	"testing"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
)

// TestTheGateIsThatOfTheLastCheckedState: checks belong to the manifest that no command separates from them.
func TestTheGateIsThatOfTheLastCheckedState(t *testing.T) {
	check := audit.Record{Type: events.CheckEnded, Data: map[string]any{"reason": events.BeforePromotion}}
	onHost := audit.Record{Type: events.CheckEnded, Data: map[string]any{"reason": events.AfterPromotion}}
	command := audit.Record{Type: events.CommandStarted}
	manifest := func(root string) audit.Record {
		return audit.Record{Type: audit.DiffRecorded, Data: map[string]any{"root": root}}
	}
	for _, c := range []struct {
		name    string
		records []audit.Record
		checks  int
		root    string
		after   int64
	}{
		{"none", []audit.Record{command, manifest("a"), onHost}, 0, "", 0},
		{"manifest after the checks", []audit.Record{command, check, check, manifest("a")}, 2, "a", -1},
		{"manifest before the check", []audit.Record{command, manifest("a"), check}, 1, "a", -1},
		{"a command since", []audit.Record{check, manifest("a"), command, manifest("b")}, 1, "a", 2},
		{"a later state was checked", []audit.Record{check, manifest("a"), command, check, manifest("b")}, 1, "b", -1},
		{"no manifest", []audit.Record{manifest("a"), command, check}, 1, "", -1},
	} {
		for i := range c.records {
			c.records[i].Seq = int64(i)
		}
		if g := gateOf(c.records); len(g.checks) != c.checks || g.root != c.root || c.checks > 0 && g.after != c.after {
			t.Errorf("%s: %+v", c.name, g)
		}
	}
}
