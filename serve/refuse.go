package serve

import (
	"context"
	"encoding/json"

	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// RefuseTool appends an event to the event log of the state directory: a coding agent called the tool, which the
// entry of the policy forbids (mcp in the section [tools]). It returns the error for the agent, of the kind
// ErrDenied, also if the event cannot be written. The event is written also if ctx, that of the call, ends. Only
// the first call of a tool is an event, see [attempts.ToolCalls]. input is the JSON text of the call. If it names a
// sandbox that the agent may use, the event is about that one, and also in its evidence log; otherwise it is about
// none.
func (s *Service) RefuseTool(ctx context.Context, tool, entry string, input []byte) error {
	s.announceRefusal(context.WithoutCancel(ctx), tool, entry, input)
	return errs.New("calling the tool "+tool, "", errs.ErrDenied, "the policy of the person who started this server refuses it (tools.mcp \""+entry+"\")")
}

// announceRefusal appends an event to the event log, unless the tool's calls are listed already: an agent called a
// tool that the entry of the policy forbids. If input, the call's JSON text, names a sandbox that an agent made, the
// event is about that sandbox.
func (s *Service) announceRefusal(ctx context.Context, tool, entry string, input []byte) {
	var about struct {
		Sandbox string `json:"sandbox"`
	}
	if err := json.Unmarshal(input, &about); err == nil && about.Sandbox != "" {
		if e, rec, err := s.enter(ctx, about.Sandbox); err == nil {
			if d, ok := attempts.RefusedCall(e.Catalog().Path(rec.Name), "mcp", tool, entry); ok {
				e.Events().Append(events.Event{Type: events.AccessRefused, Subject: rec.Name, SandboxID: rec.ID, Data: d})
			}
			return
		}
	}
	e, err := s.open(ctx)
	if err != nil { // without an engine there is no event log
		return
	}
	if d, ok := s.refused.Refused("mcp", tool, entry); ok {
		e.Events().Append(events.Event{Type: events.AccessRefused, Data: d})
	}
}
