package race

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/egress"
)

// spentEvery is how often a race checks whether the budget of an attempt is spent.
const spentEvery = 500 * time.Millisecond

// watchBudget stores in Attempt.Why that the budget of the attempt's requests is spent, within spentEvery. The caller
// calls stop once, after the command has ended, and noteSpent once the sandbox's network proxy has ended: only then is
// the last refusal certainly in the journal. Without a budget both do nothing.
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

// noteSpent reports whether the budget of the attempt is spent, and if so stores in the attempt why, with a hint to
// increase it in the profile. No command could increase it, since the sandbox ends with the attempt.
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
