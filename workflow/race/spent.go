package race

import (
	"fmt"
	"strings"
)

// watchBudget stores in Attempt.Why that the budget of the attempt's requests is spent, at the first request that is
// refused for it, with a hint to increase it in the profile: no command could increase it, since the sandbox ends with
// the attempt. The caller calls stop once, after the end of the sandbox's network proxy, which reports the last
// refusal.
func (l *attemptRunner) watchBudget() (stop func()) {
	if l.s.Supervisor == nil || l.s.Supervisor.Journal == nil {
		return func() {} // it has no proxy, and so no budget
	}
	type refusal struct{ limit, why string }
	refused := make(chan refusal, 1)
	journal := l.s.Supervisor.Journal
	journal.WatchSpent(func(limit, why string) {
		select {
		case refused <- refusal{limit, why}:
		default: // an earlier one is as good
		}
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, spent := <-refused
		if !spent {
			return
		}
		why, _, _ := strings.Cut(r.why, ". On the host:")
		l.m.note(l.i, func(a *Attempt) {
			a.Why = fmt.Sprintf("a request was refused: %s; hint: raise %s in the section [budget] of the profile", why, r.limit)
		})
	}()
	return func() {
		journal.WatchSpent(nil)
		close(refused)
		<-ended
	}
}
