package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// RefuseTool records that a coding agent called a tool which an entry of the policy forbids (mcp in [tools]), and
// returns the error for the agent (ErrDenied), joined with that of the recording. The event is written even if ctx has
// ended. If input, the call's JSON, names a sandbox that the agent may use, the event is about it and is in its evidence
// too.
func (s *Service) RefuseTool(ctx context.Context, tool, entry string, input []byte) error {
	d := events.Data{Name: "mcp", Reason: "tools: mcp " + entry}
	d.AddPath(tool)
	why := "the policy of the person who started this server refuses it (tools.mcp \"" + entry + "\")"
	refused := errs.New("calling the tool "+tool, "", errs.ErrDenied, why, "continue without this tool")
	err := s.announceRefusal(context.WithoutCancel(ctx), events.Event{Type: events.AccessRefused, Data: d}, input)
	if err != nil {
		err = fmt.Errorf("the refusal was not recorded: %w", err)
	}
	return errors.Join(refused, err)
}

// announceRefusal appends the event refused, a refusal of a call of a tool, to the event log. If input, the
// call's JSON text, names a sandbox that the agent may use, the event is about that sandbox.
func (s *Service) announceRefusal(ctx context.Context, refused events.Event, input []byte) error {
	e, err := s.open(ctx)
	if err != nil {
		return err // without an engine there is no event log
	}
	var about struct {
		Sandbox string `json:"sandbox"`
	}
	if json.Unmarshal(input, &about) == nil && about.Sandbox != "" { // the input may be anything
		_, rec, inside := s.enter(ctx, about.Sandbox)
		switch {
		case inside == nil:
			refused.Subject, refused.SandboxID = rec.Name, rec.ID
		case !errors.Is(inside, errs.ErrNotFound) && !errors.Is(inside, errs.ErrDenied) && !errors.Is(inside, errs.ErrInvalid):
			err = inside // the event may lack in the evidence of the sandbox
		}
	}
	return errors.Join(err, e.Events().TryAppend(refused))
}
