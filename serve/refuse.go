package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// RefuseTool records that a coding agent called a tool which an entry of the policy forbids (mcp in [tools]), and
// returns the error for the agent (ErrDenied), joined with that of the recording. The event is written even if ctx has
// ended, but only for the first call of a tool, see [attempts.ToolCalls]. If input, the call's JSON, names a sandbox that
// the agent may use, the event is about it and is in its evidence too.
func (s *Service) RefuseTool(ctx context.Context, tool, entry string, input []byte) error {
	why := "the policy of the person who started this server refuses it (tools.mcp \"" + entry + "\")"
	refused := errs.New("calling the tool "+tool, "", errs.ErrDenied, why, "continue without this tool")
	err := s.announceRefusal(context.WithoutCancel(ctx), tool, entry, input)
	if err != nil {
		err = fmt.Errorf("the refusal was not recorded: %w", err)
	}
	return errors.Join(refused, err)
}

// announceRefusal appends an event to the event log, unless the calls of the tool are listed already: an agent called
// a tool that the entry of the policy forbids. If input, the call's JSON text, names a sandbox that the agent may use,
// the event is about that sandbox.
func (s *Service) announceRefusal(ctx context.Context, tool, entry string, input []byte) error {
	e, err := s.open(ctx)
	if err != nil {
		return err // without an engine there is no event log
	}
	var rec *catalog.Record
	var about struct {
		Sandbox string `json:"sandbox"`
	}
	if json.Unmarshal(input, &about) == nil && about.Sandbox != "" { // the input may be anything
		_, found, inside := s.enter(ctx, about.Sandbox)
		switch {
		case inside == nil:
			rec = found
		case !errors.Is(inside, errs.ErrNotFound) && !errors.Is(inside, errs.ErrDenied) && !errors.Is(inside, errs.ErrInvalid):
			err = inside // the event may lack in the evidence of the sandbox
		}
	}
	refused := events.Event{Type: events.AccessRefused}
	var listed bool
	if rec == nil {
		refused.Data, listed = s.refused.Refused("mcp", tool, entry)
	} else {
		refused.Subject, refused.SandboxID = rec.Name, rec.ID
		refused.Data, listed = attempts.RefusedCall(e.Catalog().Path(rec.Name), "mcp", tool, entry)
	}
	if listed {
		err = errors.Join(err, e.Events().TryAppend(refused))
	}
	return err
}
