package engine_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestWhatIsAppliedIsNobodyElsesWhoeverLooks: the keeper that looks once more when a command has ended, or another
// command, does not take for the user's what has just been put there, or the rest of it would be refused.
func TestWhatIsAppliedIsNobodyElsesWhoeverLooks(t *testing.T) {
	b := newBench(t)
	other, _ := b.reopen()
	for i := range treetest.Budget(t, 8, 40) {
		name := fmt.Sprint("n", i)
		tick()
		b.new(name)
		b.in(name, fmt.Sprintf("for f in $(seq 200); do echo x > %s-$f; done", name))
		looked := make(chan error, 1)
		go func() {
			c, err := other.Compare.Diff(t.Context(), name, "", "")
			if err == nil {
				c.Close()
			}
			looked <- err
		}()
		if _, err := b.Reconcile.Promote(t.Context(), name, strictly(filepath.Join(b.workspace, name+"-1"))); err != nil {
			t.Error(err)
		}
		if err := <-looked; err != nil {
			t.Error(err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), name, strictly()); err != nil {
			t.Errorf("the rest of %s: %v", name, err)
		}
		if err := b.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}
