package supervise

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
)

// budgetLimit is the name under which the catalogue and events show the limit "budget of network requests",
// whose end pauses the sandbox.
const budgetLimit = "budget"

// spentHandler returns the function that pauses the sandbox when the budget of its network requests is spent, or nil
// if its policy asks for no pause. The proxy has refused the request already, so the client reads the refusal once a
// higher limit has resumed the sandbox, and may try again. The pause is made in the background.
func (sv *Manager) spentHandler(rec *catalog.Record, h *Supervisor) func(network.SpentLimit, string) {
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
				h.deadlines.pauseSpent(hit, func() bool { return egress.LimitRaised(sv.cat.Path(rec.Name), r.spent) })
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

// pauseSpent pauses the sandbox because the budget hit of its network requests is spent, writes an event, and
// notifies the clients; the goroutine loop saves the pause in the catalogue. It does nothing if the sandbox
// is paused already, or if higher reports that the user has increased the limit since.
func (w *deadlines) pauseSpent(hit catalog.LimitHit, higher func() bool) {
	ctx, cancel := context.WithTimeout(w.quit, 10*time.Second)
	defer cancel()
	r := w.supervisor.Resources
	done, err := r.PauseFor(ctx, hit, func() bool { return r.Paused() != nil || higher() })
	if !done || err != nil { // the next refused request tries again
		return
	}
	w.manager.announceLimit(&w.rec, &hit)
	w.notify("paused: " + hit.Text + "; end it: snapfs rm " + w.rec.Name)
	w.mu.Lock()
	w.startLoop()
	w.mu.Unlock()
	w.wakeLoop()
}

// resumeSpent resumes a sandbox that is paused because its request budget was spent, for a client that has
// increased it.
func (h *Supervisor) resumeSpent(client *fdsock.Conn) {
	resumed := h.deadlines.resumeWhenFrozen(budgetLimit)
	h.deadlines.wakeLoop() // if the client ends before it has saved that
	send(client, Reply{Resumed: resumed, Paused: h.Resources.Paused()})
}

// RaiseBudget applies change to the limits of a sandbox's request budget, and resumes the sandbox if it was paused
// because the budget was spent. what names the limit that change increases. It reports whether it has resumed the
// sandbox. Errors: those of [Manager.HoldAny], [egress.ChangeLimits] and change, which leave the limits as they were;
// errs.ErrBusy if the supervisor does not reply, after which RaiseBudget may be called again.
func (sv *Manager) RaiseBudget(ctx context.Context, name, what string, change func(limits *budget.Count) error) (resumed bool, err error) {
	h, err := sv.HoldAny(ctx, name)
	if err != nil {
		return false, err
	}
	defer h.Release()
	if err := egress.ChangeLimits(h.Record, sv.cat.Path(h.Name), what, change); err != nil || !egress.PausesWhenSpent(h.Record) {
		return false, err
	}
	t, err := sv.request(ctx, h.Record, Request{ResumeSpent: true})
	if err != nil || t == nil {
		return false, err
	}
	h.Paused = t.Paused
	return t.Resumed, h.Save()
}
