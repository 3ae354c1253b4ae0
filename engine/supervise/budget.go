package supervise

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/network"
)

// budgetLimit is the name of the limit for which a sandbox is paused whose request budget is spent.
const budgetLimit = "budget"

// pausesWhenSpent returns the function that pauses the sandbox when the budget of its requests is spent, or nil for a
// sandbox that is not paused then. The proxy has answered the request already, so the client reads the reason when a
// higher limit has resumed the sandbox, and may try again. The pause is made in the background.
func (sv *Manager) pausesWhenSpent(rec *catalog.Record, h *Supervisor) func(network.SpentLimit, string) {
	if !egress.PausesWhenSpent(rec) {
		return nil
	}
	type refusal struct {
		spent network.SpentLimit
		why   string
	}
	refusals := make(chan refusal, 1)
	h.served.Go(func() {
		for {
			select {
			case <-h.Container.Done():
				return
			case r := <-refusals:
				hit := catalog.LimitHit{Limit: budgetLimit, Value: r.spent.Limit, Text: r.why, When: time.Now()}
				if h.deadlines.pauseSpent(hit, func() bool { return egress.Refilled(sv.cat.Path(rec.Name), r.spent) }) {
					sv.recordPause(rec, h)
				}
			}
		}
	})
	return func(spent network.SpentLimit, why string) {
		select {
		case refusals <- refusal{spent, why}:
		default: // a pause is due anyway
		}
	}
}

// pauseSpent pauses the sandbox because its budget is spent, and notifies the clients. It does nothing and returns
// false if the sandbox is paused already, or if increased reports that the limit is higher now.
func (w *deadlines) pauseSpent(hit catalog.LimitHit, increased func() bool) bool {
	ctx, cancel := context.WithTimeout(w.quit, 10*time.Second)
	defer cancel()
	r := w.supervisor.Resources
	done, err := r.pauseFor(ctx, hit, func() bool { return r.paused.Load() != nil || increased() })
	if !done || err != nil { // the next refused request tries again
		return false
	}
	w.notify("paused: " + hit.Text + "; end it: snapfs rm " + w.rec.Name)
	return true
}

// recordPause saves in the sandbox's catalogue entry that the sandbox is paused, unless it has resumed meanwhile. It
// gives up after some seconds, as the entry only serves lists.
func (sv *Manager) recordPause(rec *catalog.Record, h *Supervisor) {
	for end := time.Now().Add(keyPointPatience); h.alive() && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		held, err := sv.cat.TryLock(rec.Name)
		if err != nil {
			continue
		}
		if why := h.Resources.paused.Load(); held.ID == rec.ID && why != nil {
			held.Paused, held.LimitHit = why, why
			_ = held.Save() // without it, lists show the sandbox as running
		}
		held.Release()
		return
	}
}

// refill resumes the sandbox for a client that has increased its budget, if the sandbox is paused because that was
// spent.
func (h *Supervisor) refill(client *fdsock.Conn) {
	h.deadlines.resumeWhenFrozen(budgetLimit)
	send(client, Reply{Paused: h.Resources.paused.Load()})
}

// Refill resumes a sandbox that was paused because its budget was spent, after its limit was increased. It
// reports whether it has resumed the sandbox. Errors: those of [Manager.Hold].
func (sv *Manager) Refill(ctx context.Context, name string) (resumed bool, err error) {
	h, err := sv.Hold(ctx, name, "raising the budget")
	if err != nil {
		return false, err
	}
	defer h.Release()
	t, err := sv.request(ctx, h.Record, Request{Refill: true})
	if err != nil || t == nil {
		return false, err
	}
	resumed = h.Paused != nil && h.Paused.Limit == budgetLimit && t.Paused == nil
	h.Paused = t.Paused
	return resumed, h.Save()
}
