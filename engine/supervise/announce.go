package supervise

import (
	"cmp"
	"context"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/isolate"
)

// Starting has the start of a command in a sandbox witnessed. The caller starts the command only if
// there is no error, and then calls Started with the result.
func (sv *Manager) Starting(rec *catalog.Record, command *isolate.Command) (*events.Start, error) {
	return sv.events.Starting(rec.Name, rec.ID, command.Args, command.Env)
}

// StartIn has the start of a command witnessed, and starts it in a sandbox of this process. The
// caller passes the second result to Started.
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

// Started announces the start of a command in a sandbox in the stream of events. The returned
// function announces its end with what the sandbox's processes have used, and before that the
// limit that was hit, or another that its supervisor knows. The caller calls it before it closes
// the supervisor.
func (sv *Manager) Started(rec *catalog.Record, h *Supervisor, start *events.Start) (ended func(isolate.Status, *catalog.LimitHit)) {
	end := start.Started()
	return func(st isolate.Status, hit *catalog.LimitHit) {
		var u events.Usage
		if h.Resources.Group != nil {
			u.CPU, u.MemoryBytes = h.Resources.Group.Used()
		}
		hit = cmp.Or(hit, h.Resources.limitHit(), &catalog.LimitHit{})
		if hit.Limit != "" {
			reached := events.Data{Limit: hit.Limit, Value: hit.Value, Reason: hit.Text}
			sv.events.Append(events.Event{Type: events.LimitReached, Subject: rec.Name, SandboxID: rec.ID, Data: reached})
		}
		end(st.ExitCode(), u, hit.Limit)
	}
}

// announceSelfTest announces the result of a self-test in a sandbox.
func (sv *Manager) announceSelfTest(rec *catalog.Record, proof *catalog.Proof) {
	tested := events.Data{Held: proof.Held}
	for _, wall := range proof.Crossed {
		tested.Crossed = append(tested.Crossed, wall.Name)
	}
	sv.events.Append(events.Event{Type: events.SelfTested, Subject: rec.Name, SandboxID: rec.ID, Data: tested})
}
