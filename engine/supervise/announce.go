package supervise

import (
	"cmp"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/isolate"
)

// Started announces the start of a command in a sandbox in the stream of events. The returned
// function announces its end with what the sandbox's processes have used, and before that the
// limit that was hit, or another that its supervisor knows. The caller calls it before it closes
// the supervisor.
func (sv *Manager) Started(rec *catalog.Record, h *Supervisor, args []string) (ended func(isolate.Status, *catalog.LimitHit)) {
	end := sv.events.Started(rec.Name, rec.ID, args)
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
