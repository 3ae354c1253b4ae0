package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A watchedContext measures how much processor time passes between two looks at whether it has
// ended, and ends itself at the look with the number end; 0 is never.
type watchedContext struct {
	context.Context
	t   testing.TB
	end int

	mu    sync.Mutex
	looks int
	last  time.Duration
	// longest is the longest time between two looks, and stack where it ended.
	longest time.Duration
	stack   []byte
}

func (c *watchedContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := treetest.ProcessorTime(c.t)
	if gap := now - c.last; c.looks > 0 && gap > c.longest {
		c.longest, c.stack = gap, debug.Stack()
	}
	c.looks, c.last = c.looks+1, now
	if c.end > 0 && c.looks >= c.end {
		return context.Canceled
	}
	return c.Context.Err()
}

// TestAPlanHeedsItsContext: a plan of many conflicts looks at its context in each step, so that a
// signal ends it at once, wherever that comes. It costs a second, in test-long 3 s: below 6,000
// conflicts a step that is quadratic in their number is too fast to be seen.
func TestAPlanHeedsItsContext(t *testing.T) {
	treetest.NeedRoot(t)
	const dirs, most = 60, 500 * time.Millisecond
	files := treetest.Budget(t, 20, 100)
	b := newBench(t)
	for d := range dirs {
		b.mkdir(fmt.Sprintf("d%d", d))
		for f := range files {
			b.write(fmt.Sprintf("d%d/f%d", d, f), "base\n")
		}
	}
	tick()
	req := b.request()
	req.Name, req.Backend = "many", "overlay"
	if _, err := b.New(b.t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b.removeLater("many")
	b.in("many", "for f in */*; do echo mine > $f; done")
	if err := b.Supervise.Stop(b.t.Context(), "many"); err != nil {
		t.Fatal(err)
	}
	tick()
	for d := range dirs {
		for f := range files {
			b.write(fmt.Sprintf("d%d/f%d", d, f), "real\n")
		}
	}
	whole := &watchedContext{Context: t.Context(), t: t}
	plan, err := b.Reconcile.PlanOf(whole, "many", reconcile.PlanOptions{})
	if err != nil || len(plan.Conflicts) != dirs*files {
		t.Fatalf("the plan has %d conflicts: %v", len(plan.Conflicts), err)
	}
	if whole.longest > most {
		t.Errorf("the plan did not look at its context for %v, until:\n%s", whole.longest, whole.stack)
	}
	for _, part := range []int{8, 4, 2} {
		ended := &watchedContext{Context: t.Context(), t: t, end: whole.looks - whole.looks/part}
		if _, err := b.Reconcile.PlanOf(ended, "many", reconcile.PlanOptions{}); !errors.Is(err, errs.ErrInterrupted) {
			t.Errorf("a plan that was ended at its look %d of %d: %v", ended.end, whole.looks, err)
		}
		if after := ended.looks - ended.end; after > 100 {
			t.Errorf("a plan that was ended went on for %d looks", after)
		}
	}
	if _, err := os.Stat(b.workspace + "/d0/f0"); err != nil {
		t.Error(err)
	}
}
