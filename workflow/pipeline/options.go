package pipeline

import (
	"maps"
	"slices"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
)

// ErrCheck means that a command of a stage of a promotion failed, ErrWaiting that a stage waits for a
// person's approval. A [*StageError] wraps them.
var (
	ErrCheck   = errs.NewStatus(9, "a check did not succeed")
	ErrWaiting = errs.NewStatus(10, "it waits for approval")
)

// A StageError says at which stage a promotion stopped and why. The stages before it are done. It is a type
// of its own because a person is shown the command's output, which no other error has.
type StageError struct {
	Stage string
	// Command is the check that failed, or "". Tail are the last lines of its output, and Log is
	// the file with all of it.
	Command, Tail, Log string
	// State is the present state of the stage.
	State stages.StageState
	Err   error
	// Next lists commands with which the user can continue.
	Next []string
}

// Error returns, as one text, the stage of a promotion that failed, the cause, and whether the target was
// changed.
func (e *StageError) Error() string {
	text := "stage " + e.Stage + ": " + e.Err.Error()
	switch e.State {
	case stages.StageUndone:
		text += "; the stage was taken back"
	case stages.StageFailed:
		text += "; nothing was promoted to it"
	}
	return text
}

func (e *StageError) Unwrap() error { return e.Err }

// Hints returns the commands with which the user can continue the promotion that stopped at a stage.
func (e *StageError) Hints() []string { return e.Next }

// promoteOptions returns the options with which package reconcile promotes a sandbox to stage i of the
// pipeline p: to that stage's target directory, with the answers to conflicts and approvals that hold for the
// whole pipeline. A pipeline is a chain of stages through which one sandbox's result is promoted, as to dev,
// then test.
func promoteOptions(p *stages.Pipeline, i int) reconcile.PromoteOptions {
	target := p.Target(i)
	if target == p.Workspace {
		target = ""
	}
	return reconcile.PromoteOptions{
		PlanOptions: reconcile.PlanOptions{Only: p.Options.Only, Target: target, Allow: p.Options.Allow, Also: slices.Collect(maps.Keys(p.Content))},
		Mine:        p.Options.Mine, Theirs: p.Options.Theirs,
	}
}
