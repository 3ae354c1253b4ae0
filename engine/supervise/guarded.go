package supervise

import (
	"cmp"
	"context"

	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/guarded"
	"github.com/snapfs/snapfs/engine/supervise/cmdbroker"
	"github.com/snapfs/snapfs/isolate"
)

// startBroker starts the broker of the sandbox's guarded programs, if its policy has rules with arguments. A refused call
// becomes an event, and is listed with the other attempts.
func (sv *Manager) startBroker(rec *catalog.Record, h *Supervisor) (err error) {
	rules, _, err := guarded.Rules(rec.Policy.Tools, guarded.OnHost, guarded.ProgramDirs)
	if err != nil || len(rules) == 0 {
		return err
	}
	source := "the policy of the sandbox"
	if u := rec.Policy.Profile; u != nil {
		source = cmp.Or(u.Path, source)
	}
	if s := rec.Policy.Site; s != nil {
		source += ", bounded by " + s.Path
	}
	refusals := attempts.NewArguments(rec, h.Attempts, sv.events)
	h.commands, err = cmdbroker.Start(cmdbroker.Options{
		Container: h.Container, Rules: rules, Source: source, Pass: catalog.VariableNames(rec.Policy.Env),
		Execute: func(ctx context.Context, c isolate.Command) (*isolate.Process, error) {
			return h.start(ctx, c, func(*isolate.Process) {})
		},
		Last: func() isolate.Command {
			if c := h.last.Load(); c != nil {
				return *c
			}
			return isolate.Command{}
		},
		Refused: func(r cmdbroker.Refusal) { refusals.Refused(r.Program, r.Words, r.By, r.Reason) },
	})
	return err
}
