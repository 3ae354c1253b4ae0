package pipeline

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
)

// A HistoryEntry is a line of `snapfs log`: a promotion, or one stage of a promotion that goes through the
// stages of a profile, such as test, staging and production.
type HistoryEntry struct {
	When    time.Time `json:"when"`
	Sandbox string    `json:"sandbox"`
	// Pipeline is the id of the promotion through stages, and Stage the stage's name; "" for a
	// promotion without stages.
	Pipeline string `json:"pipeline,omitempty"`
	Stage    string `json:"stage,omitempty"`
	// Target is the target directory, or "" where a command deploys.
	Target string `json:"target,omitempty"`
	// Result is a StageState. An unfinished stage that no process works on was interrupted.
	Result      stages.StageState `json:"result"`
	Interrupted bool              `json:"interrupted,omitempty"`
	// Undone is set if the stage was completed and later undone by
	// [reconcile.Reconciler.Undo].
	Undone bool `json:"undone,omitempty"`
	// Why explains Result; it may be "".
	Why string `json:"why,omitempty"`
	// Took is the time that the stage took, without waiting for a person.
	Took    policy.Duration `json:"took"`
	Changes int             `json:"changes"`
	// Approved is the user who approved the stage, "" before that. Asked is set if the stage
	// required a person's approval.
	Approved string `json:"approved,omitempty"`
	Asked    bool   `json:"asked,omitempty"`
	// Promotion is the id for [reconcile.Reconciler.Undo], or "" if the stage promoted
	// nothing.
	Promotion string `json:"promotion,omitempty"`
}

// History lists promotions, newest first: each stage that was begun, and each promotion without stages that
// can be undone. The error names those that cannot be read; the others are returned all the same.
func (pl *Runner) History() ([]HistoryEntry, error) {
	pipelines, err := pl.engine.Stages.Pipelines()
	all := []HistoryEntry{}
	staged := map[string]bool{}
	for _, p := range pipelines {
		now, more := p.Current()
		for i := range p.Stages {
			s := &p.Stages[i]
			if s.State == stages.StagePending && (!more || i != now || s.Began.IsZero()) {
				continue
			}
			staged[s.Promotion] = true
			entry := historyEntry(&p, i)
			entry.Undone = s.State == stages.StageDone && pl.engine.Stages.WasUndone(&p, s)
			all = append(all, entry)
		}
	}
	promotions, perr := pl.engine.Reconcile.Promotions()
	for _, m := range promotions {
		if !staged[m.Group] {
			all = append(all, HistoryEntry{
				When: m.When, Sandbox: m.Sandbox, Target: m.Path, Result: stages.StageDone, Changes: m.Applied, Promotion: m.Group,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b HistoryEntry) int { return b.When.Compare(a.When) })
	return all, errors.Join(err, perr)
}

// historyEntry returns the line of `snapfs log` for stage i of p, a promotion through stages.
func historyEntry(p *stages.Pipeline, i int) HistoryEntry {
	s := &p.Stages[i]
	h := HistoryEntry{
		When: s.Began, Sandbox: p.Sandbox, Pipeline: p.ID, Stage: s.Name, Target: s.Target, Result: s.State, Why: s.Why,
		Took: policy.Duration(time.Duration(s.Took).Round(time.Millisecond)), Changes: s.Changes, Promotion: s.Promotion,
	}
	h.Interrupted = !s.State.Ended() && s.State != stages.StageWaiting && !p.Running
	if s.Approved != nil {
		h.Approved, h.Asked = s.Approved.By, s.Approved.Asked
	}
	return h
}

// ProfileOf reads the profile for a promotion of the sandbox called name: the file at an absolute path, or if
// path is "" the one in the sandbox's real workspace, to which no sandbox can write. Errors: those of
// policy.Read; ErrNotFound (the sandbox).
func (pl *Runner) ProfileOf(name, path string) (*policy.Profile, error) {
	rec, err := pl.cat.Get(name)
	if err != nil {
		return nil, err
	}
	return Profile(rec.Workspace, path)
}

// Profile reads the profile at an absolute path, or if path is "" the one in the directory workspace. Errors:
// those of policy.Read.
func Profile(workspace, path string) (*policy.Profile, error) {
	trust := policy.Named
	if path == "" {
		trust = policy.Found
		path = filepath.Join(workspace, policy.Name)
	}
	p, err := policy.Read(path, trust)
	var missing *errs.Error
	if errors.Is(err, errs.ErrNotFound) && errors.As(err, &missing) {
		missing.Hints = []string{"snapfs help profile   # what belongs in it"}
	}
	return p, err
}
