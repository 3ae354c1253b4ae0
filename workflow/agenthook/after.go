package agenthook

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/workflow/view"
)

// postToolUse answers the hook event of a coding agent after one call of a tool. Like postToolBatch, for an
// agent that has no batches, it takes a snapshot and reports drift; it also says to the model where the
// result of a subagent is.
func (h *Handler) postToolUse(ctx context.Context, ev *event) ([]byte, error) {
	if !h.anyViews() {
		return nil, nil
	}
	if text, err := h.resultText(ctx, ev); err != nil || text != "" {
		if err != nil {
			return nil, err
		}
		return output{Context: text}.encode(ev)
	}
	if h.Agent == "claude" { // PostToolBatch follows
		return nil, nil
	}
	return h.postToolBatch(ctx, ev)
}

// resultText returns a text for the agent's model about the clone that a subagent worked in and changed; ""
// if there is none.
func (h *Handler) resultText(ctx context.Context, ev *event) (string, error) {
	var r struct {
		WorktreePath string `json:"worktreePath"`
	}
	_ = json.Unmarshal(ev.Response, &r) // another tool's answer has another form
	name := view.SandboxAt(h.State, r.WorktreePath)
	if name == "" {
		return "", nil
	}
	e, err := h.Open(ctx)
	if err != nil {
		return "", err
	}
	n, err := changes(ctx, e, name)
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("The subagent worked in the snapfs sandbox %s (%s), which has %d changes. They are not in the real files. "+
		"The user can review them with `snapfs diff %s --patch` and take them over with `snapfs promote %s`, which merges.", name, r.WorktreePath, n, name, name), nil
}

// postToolBatch answers the hook event of a coding agent after a batch of tool calls. It takes a checkpoint,
// a snapshot, of the agent's sandbox if a call may have changed files, and reports drift of the real
// workspace to the model.
func (h *Handler) postToolBatch(ctx context.Context, ev *event) ([]byte, error) {
	if !h.anyViews() {
		return nil, nil
	}
	c, changed := ev.changer()
	if !changed {
		return nil, nil
	}
	l, err := h.leaseOf(ctx, ev)
	if err != nil || l == nil {
		return nil, err
	}
	e, err := h.Open(ctx)
	if err != nil {
		return nil, err
	}
	found := h.searchDrift(ctx, e, l.Sandbox)
	err = checkpoint(ctx, e, l, Checkpoint{Call: c.ID, Tool: c.Tool, Turn: ev.turn()})
	drift := <-found
	if err != nil {
		return nil, err
	}
	text, err := drift.text(ctx, e, l)
	if err != nil || text == "" {
		return nil, err
	}
	return output{Context: text}.encode(ev)
}

// compareTime is how long the paths that may have drifted, once they are found, are compared with the sandbox
// at most, so that the agent's next call is not delayed. Then the drift is not reported.
const compareTime = 5 * time.Millisecond

// A driftResult is the result of a search for the drift of the real workspace of an agent's sandbox.
type driftResult struct {
	report compare.DriftReport
	err    error
}

// searchDrift searches the real workspace of a sandbox for drift while the caller does something else, and sends the
// result. A workspace too large for h.LookTime is not searched.
func (h *Handler) searchDrift(ctx context.Context, e *engine.Engine, sandbox string) <-chan driftResult {
	found := make(chan driftResult, 1)
	go func() {
		r, err := e.Compare.DriftWithin(ctx, sandbox, h.LookTime, h.LookTime+compareTime)
		found <- driftResult{r, err}
	}()
	return found
}

// text returns a text for the model about the drift of the real workspace, or "" if there is none or the
// model got the same text before.
func (d driftResult) text(ctx context.Context, e *engine.Engine, l *Lease) (string, error) {
	r := d.report
	if d.err != nil || !r.Known || len(r.Paths) == 0 {
		return "", d.err
	}
	found := fingerprint(r)
	if found == l.Drift {
		return "", nil
	}
	const most = 10
	var names []string
	for _, p := range r.Paths[:min(len(r.Paths), most)] {
		name := p.Path
		if rel, err := filepath.Rel(l.Workspace, name); err == nil && filepath.IsLocal(rel) {
			name = rel
		}
		if p.Both {
			name += " (changed here too)"
		}
		names = append(names, fmt.Sprintf("%q", name))
	}
	if more := len(r.Paths) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("The real files of %s have changed since the sandbox %s was made: %s. The sandbox still has the earlier content. "+
		"The user can bring the new content in with `snapfs refresh %s`.", l.Workspace, l.Sandbox, strings.Join(names, ", "), l.Sandbox), l.update(ctx, e, func(l *Lease) { l.Drift = found })
}

// fingerprint returns a digest of the paths in r, which says how the real workspace has changed. If it is the
// same as after the last call, the coding agent already knows these changes.
func fingerprint(r compare.DriftReport) string {
	var b strings.Builder
	for _, p := range r.Paths {
		fmt.Fprintf(&b, "%s %v %s\n", p.Kind, p.Both, p.Path)
	}
	return digest(b.String())
}
