package supervise

import (
	"cmp"
	"context"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/isolate"
)

// Starting shows a command that is about to start in a sandbox to the witness, which stores signed evidence of the
// sandbox's events; an error forbids the start. Without one the caller starts the command and calls Started.
func (sv *Manager) Starting(rec *catalog.Record, command *isolate.Command) (*events.Start, error) {
	of := events.Sandbox{Name: rec.Name, ID: rec.ID, Unwitnessed: !rec.Policy.Evidence, Redacted: leak.Redacts(&rec.Policy)}
	return sv.events.Starting(of, command.Args, command.Env)
}

// StartIn starts a command in the container h of a sandbox, unless its start cannot be stored as evidence,
// the signed log of a sandbox (see Starting). The caller passes the returned Start to Started.
func (sv *Manager) StartIn(ctx context.Context, rec *catalog.Record, h *Supervisor, command isolate.Command) (*isolate.Process, *events.Start, error) {
	start, err := sv.Starting(rec, &command)
	if err != nil {
		return nil, nil, err
	}
	p, err := h.Start(ctx, command)
	if err != nil {
		start.Refused(err)
	}
	return p, start, err
}

// Started writes to the event log that a command has started in a sandbox. The caller calls ended once the command
// has ended and before closing h, with the limit that the command hit or nil. ended writes the event of the command's
// end with the resources that the sandbox's processes used, and before it one for the limit, or for a limit that h
// has noted. For a spent budget it writes none: the pause of the sandbox wrote that event.
func (sv *Manager) Started(rec *catalog.Record, h *Supervisor, start *events.Start) (ended func(isolate.Status, *catalog.LimitHit)) {
	end := start.Started()
	return func(st isolate.Status, hit *catalog.LimitHit) {
		var u events.Usage
		if h.Resources.Group != nil {
			u.CPU, u.MemoryBytes = h.Resources.Group.Used()
		}
		hit = cmp.Or(hit, h.Resources.LimitHit(), &catalog.LimitHit{})
		if hit.Limit != "" && hit.Limit != budgetLimit {
			sv.announceLimit(rec, hit)
		}
		end(st.ExitCode(), u, hit.Limit)
	}
}

// announceLimit writes to the event log that a sandbox has reached the limit hit.
func (sv *Manager) announceLimit(rec *catalog.Record, hit *catalog.LimitHit) {
	sv.events.Append(events.Event{Type: events.LimitReached, Subject: rec.Name, SandboxID: rec.ID, Data: events.Data{Limit: hit.Limit, Value: hit.Value, Reason: hit.Text}})
}

// announceSelfTest writes an event with the result of the isolation self-test of a sandbox: which forbidden actions
// failed inside, as they must, and which succeeded.
func (sv *Manager) announceSelfTest(rec *catalog.Record, proof *catalog.Proof) {
	tested := events.Data{Held: proof.Held}
	for _, wall := range proof.Crossed {
		tested.Crossed = append(tested.Crossed, wall.Name)
	}
	sv.events.Append(events.Event{Type: events.SelfTested, Subject: rec.Name, SandboxID: rec.ID, Data: tested})
}

// questions returns the function that notifies the clients of a sandbox, or the user of a run, of a waiting connection.
func (sv *Manager) questions(rec *catalog.Record, h *Supervisor) func(rule string) {
	return func(rule string) {
		text := egress.Waiting(rec.Name, rule)
		if h.deadlines.notify(text); rec.Ephemeral {
			sv.notice(text)
		}
	}
}
