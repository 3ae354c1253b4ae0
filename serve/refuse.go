package serve

import (
	"context"
	"encoding/json"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// RefuseTool appends an event to the event log of the state directory: a coding agent called the tool, which the
// entry of the policy forbids (mcp in the section [tools]). It returns the error for the agent, of the kind
// ErrDenied, also if the event cannot be written. The event is written also if ctx, that of the call, ends. input is the JSON text of the call. If it names a sandbox that
// the agent may use, the event is about that one, and also in its evidence log; otherwise it is about none.
func (s *Service) RefuseTool(ctx context.Context, tool, entry string, input []byte) error {
	d := events.Data{Name: "mcp", Reason: "tools: mcp " + entry}
	d.AddPath(tool)
	s.announceRefusal(context.WithoutCancel(ctx), events.Event{Type: events.AccessRefused, Data: d}, input)
	return errs.New("calling the tool "+tool, "", errs.ErrDenied, "the policy of the person who started this server refuses it (tools.mcp \""+entry+"\")")
}

// announceRefusal appends the event refused, a refusal of a call of a tool, to the event log. If input, the
// call's JSON text, names a sandbox that an agent made, the event is about that sandbox.
func (s *Service) announceRefusal(ctx context.Context, refused events.Event, input []byte) {
	var about struct {
		Sandbox string `json:"sandbox"`
	}
	if err := json.Unmarshal(input, &about); err == nil && about.Sandbox != "" {
		if e, rec, err := s.enter(ctx, about.Sandbox); err == nil {
			refused.Subject, refused.SandboxID = rec.Name, rec.ID
			e.Events().Append(refused)
			return
		}
	}
	if e, err := s.open(ctx); err == nil { // without an engine there is no event log
		e.Events().Append(refused)
	}
}
