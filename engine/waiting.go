package engine

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
)

// A Wait is one piece of work in a workspace that continues only when a person acts, such as a promotion that
// needs approval. [Engine.Waiting] lists them.
type Wait struct {
	// Sandbox is the sandbox that it is about.
	Sandbox string   `json:"sandbox"`
	Kind    WaitKind `json:"kind"`
	// Text says in words what waits, and Commands are commands that make it go on.
	Text     string   `json:"text"`
	Commands []string `json:"commands,omitempty"`
}

// WaitKind says which kind of action a Wait needs, such as an approval or the resolution of conflicts.
type WaitKind string

// The values of WaitKind: why something of a sandbox, such as a promotion, has stopped until a person acts.
const (
	WaitApproval    WaitKind = "approval"    // a stage of a promotion needs approval
	WaitInterrupted WaitKind = "interrupted" // a promotion through stages was interrupted
	WaitUnfinished  WaitKind = "unfinished"  // a killed promotion needs its target mounted
	WaitConflicts   WaitKind = "conflicts"   // a refresh left conflicts in the sandbox
	WaitNetwork     WaitKind = "network"     // a connection waits for an answer
	WaitUnclaimed   WaitKind = "unclaimed"   // a run left it, and it will be removed
)

// Waiting lists everything that a person must decide on or repair: approvals, conflicts, interrupted
// promotions and unclaimed results. infos are from [Engine.List]; only promotions of one of the workspaces
// count. Errors are returned beside the list.
func (e *Engine) Waiting(ctx context.Context, infos []Info, workspaces []string) ([]Wait, error) {
	waits := []Wait{}
	pipelines, err := e.Stages.Pipelines()
	for _, p := range pipelines {
		if p.State == stages.PipelineOpen && !p.Running && slices.Contains(workspaces, p.Workspace) {
			waits = append(waits, waitOf(&p))
		}
	}
	for _, i := range infos {
		if u := i.Unfinished; u != nil {
			waits = append(waits, Wait{Sandbox: i.Name, Kind: WaitUnfinished, Text: u.String(), Commands: []string{"snapfs doctor"}})
		}
		if i.Run != nil && i.Run.Unclaimed {
			waits = append(waits, Wait{
				Sandbox: i.Name, Kind: WaitUnclaimed, Text: "kept by run for a day, for nobody has decided",
				Commands: []string{"snapfs diff " + i.Name, "snapfs promote " + i.Name, "snapfs keep " + i.Name},
			})
		}
		questions, _, qerr := e.Egress.Questions(i.Record)
		err = errors.Join(err, qerr)
		for _, q := range questions {
			waits = append(waits, Wait{
				Sandbox: i.Name, Kind: WaitNetwork, Text: "a connection to " + q.Rule + " waits",
				Commands: []string{"snapfs net " + i.Name + " --allow " + errs.Quoted(q.Rule), "snapfs net " + i.Name + " --deny " + errs.Quoted(q.Rule)},
			})
		}
		conflicts, cerr := e.Reconcile.Conflicts(ctx, i.Name)
		err = errors.Join(err, cerr)
		if n := len(conflicts); n > 0 {
			waits = append(waits, Wait{
				Sandbox: i.Name, Kind: WaitConflicts, Text: "unresolved conflicts of a refresh: " + strconv.Itoa(n),
				Commands: []string{"snapfs show " + i.Name},
			})
		}
	}
	return waits, err
}

// waitOf returns the Wait for a promotion through stages that has not ended and on which no process works: it
// needs approval, or it was interrupted.
func waitOf(p *stages.Pipeline) Wait {
	w := Wait{Sandbox: p.Sandbox, Kind: WaitInterrupted, Commands: []string{"snapfs promote --continue " + p.ID, "snapfs promote --cancel " + p.ID}}
	i, more := p.Current()
	switch {
	case !more:
		w.Text = "its promotion to " + p.To + " was interrupted"
	case p.Stages[i].State == stages.StageWaiting:
		w.Kind, w.Text = WaitApproval, "stage "+p.Stages[i].Name+" needs approval"
		w.Commands[0] += " --approve"
	default:
		w.Text = "its promotion to " + p.To + " was interrupted in stage " + p.Stages[i].Name
	}
	return w
}
