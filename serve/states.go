package serve

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/keypoint"
)

// A CheckpointRequest is a coding agent's request to store the present files of a sandbox as a checkpoint.
type CheckpointRequest struct {
	Sandbox string `json:"sandbox" jsonschema:"the sandbox's name"`
	Name    string `json:"name,omitempty" jsonschema:"the checkpoint's name; without one, snapfs chooses it"`
}

// A Checkpoint is a stored state of a sandbox's files, to which [Service.Rollback] can return the sandbox.
type Checkpoint struct {
	Sandbox    string    `json:"sandbox"`
	Checkpoint string    `json:"checkpoint"`
	Taken      time.Time `json:"taken"`
	Why        string    `json:"why,omitempty" jsonschema:"why snapfs took it by itself"`
}

// checkpointOf describes the named snapshot m of a sandbox as a checkpoint for an agent.
func checkpointOf(sandbox string, m catalog.NamedSnapshot) Checkpoint {
	c := Checkpoint{Sandbox: sandbox, Checkpoint: m.Name, Taken: m.Taken}
	if m.Why != nil {
		c.Why = keypoint.Text(*m.Why)
	}
	return c
}

// Checkpoint stores the present files of a sandbox under a name, so that [Service.Rollback] can return to
// them. Errors: those of [engine.Engine.Snapshot].
func (s *Service) Checkpoint(ctx context.Context, q CheckpointRequest) (Checkpoint, error) {
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return Checkpoint{}, err
	}
	m, err := e.Snapshot(ctx, q.Sandbox, q.Name)
	return checkpointOf(q.Sandbox, m), err
}

// A RollbackRequest is a coding agent's request to return a sandbox's files to a checkpoint.
type RollbackRequest struct {
	Sandbox string `json:"sandbox" jsonschema:"the sandbox's name"`
	To      string `json:"to,omitempty" jsonschema:"the checkpoint; without one, the state in which the sandbox was made"`
	Stop    bool   `json:"stop,omitempty" jsonschema:"end the sandbox's processes first; without this, a rollback is refused while some run"`
}

// A RolledBack is the reply to a [RollbackRequest]: the state to which the sandbox's files have returned.
type RolledBack struct {
	Sandbox string `json:"sandbox"`
	To      string `json:"to" jsonschema:"the checkpoint, or empty for the state in which the sandbox was made"`
}

// Rollback returns a sandbox's files to a checkpoint. Changes made after the last checkpoint are lost.
// Errors: those of [engine.Engine.Rollback].
func (s *Service) Rollback(ctx context.Context, q RollbackRequest) (RolledBack, error) {
	e, _, err := s.enter(ctx, q.Sandbox)
	if err == nil && q.Stop {
		err = e.Supervise.Stop(ctx, q.Sandbox)
	}
	if err == nil {
		err = e.Rollback(ctx, q.Sandbox, q.To)
	}
	return RolledBack{q.Sandbox, q.To}, err
}
