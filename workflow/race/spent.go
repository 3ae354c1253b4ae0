package race

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/egress"
)

// spentEvery is the time between two looks at whether the budget of an attempt of a race is spent.
const spentEvery = 500 * time.Millisecond

// watchBudget reports in Attempt.Why, as soon as it happens, that the budget of the attempt's requests is spent. The
// caller calls stop once, after the command's end, and noteSpent when the sandbox's network proxy has ended: only then
// is the last refusal certainly in its journal. Without a budget it does nothing.
func (l *attemptRunner) watchBudget(ctx context.Context) (stop func()) {
	if l.s.Record.Policy.Budget == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(spentEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if l.noteSpent() {
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// noteSpent stores in the attempt why its budget is spent, with the way to increase it, and reports whether it is.
// No command increases the budget of an attempt, whose sandbox ends with it.
func (l *attemptRunner) noteSpent() bool {
	if l.s.Record.Policy.Budget == nil {
		return false
	}
	ev := egress.SpentIn(l.m.e.cat.Path(l.s.Record.Name))
	if ev == nil {
		return false
	}
	why, _, _ := strings.Cut(ev.Why, ". On the host:")
	l.m.note(l.i, func(a *Attempt) {
		a.Why = fmt.Sprintf("a request was refused: %s; hint: raise %s in the section [budget] of the profile", why, ev.Spent.Limit)
	})
	return true
}
