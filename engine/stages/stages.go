package stages

import (
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
)

// A Pipeline describes one promotion of a sandbox through the stages of a profile, with its progress. One
// that has ended stays as history.
type Pipeline struct {
	Format int `json:"format"`
	// ID is the name of the pipeline and of its directory.
	ID string `json:"id"`
	// Sandbox is the name of the promoted sandbox. SandboxID distinguishes it
	// from a later sandbox of the same name.
	Sandbox   string `json:"sandbox"`
	SandboxID string `json:"sandbox_id"`
	Workspace string `json:"workspace"`
	// Profile is the file from which the stages were read. Later edits of the
	// file change nothing. To is the last stage that the user requested.
	Profile string `json:"profile"`
	To      string `json:"to"`
	// By is the user who started the pipeline.
	By    string        `json:"by"`
	Began time.Time     `json:"began"`
	Ended time.Time     `json:"ended,omitzero"`
	State PipelineState `json:"state"`
	// Options apply to the promotion of every stage.
	Options PipelineOptions `json:"options"`
	Stages  []StageRun      `json:"stages"`
	// Running is set if a process works on the pipeline now. It is not written to the file.
	Running bool `json:"running"`
	// Content is a digest of each change of the sandbox at the start, by path.
	// See package workflow/pipeline.
	Content map[string]string
}

// PipelineState says whether and how a promotion through the stages of a profile, a pipeline, has ended.
type PipelineState string

// The states of a promotion through stages. An open one without a running process was interrupted.
const (
	PipelineOpen      PipelineState = "open"
	PipelineDone      PipelineState = "done"
	PipelineFailed    PipelineState = "failed"
	PipelineCancelled PipelineState = "cancelled"
)

// PipelineOptions are the options of `snapfs promote` that apply to every stage of a pipeline. A pipeline
// promotes a result to one directory after another, its stages, which a profile (a snapfs.toml file) lists
// with the checks before each. Only, Mine and Theirs are paths or patterns: Only limits what is promoted, and
// conflicts end with the sandbox's version at Mine and the target's at Theirs.
type PipelineOptions struct {
	Only   []string       `json:"only,omitempty"`
	Allow  approval.Allow `json:"allow,omitzero"`
	Mine   []string       `json:"mine,omitempty"`
	Theirs []string       `json:"theirs,omitempty"`
}

// A StageRun is one stage, such as staging, of a promotion through several, as the profile defines it, with
// its progress.
type StageRun struct {
	policy.Stage
	State StageState `json:"state"`
	// Plan is the fingerprint of the stage's plan, and Changes the number of
	// paths that it changes.
	Plan    string `json:"plan,omitempty"`
	Changes int    `json:"changes"`
	// Approved records who allowed the stage to start; nil before that.
	Approved *StageApproval `json:"approved,omitempty"`
	// Promotion is the identifier for undoing the stage, or "" if it promoted
	// nothing.
	Promotion string `json:"promotion,omitempty"`
	// Began and Ended are those of the last attempt. Took is the duration of all
	// attempts, without the time spent waiting for approval.
	Began time.Time       `json:"began,omitzero"`
	Ended time.Time       `json:"ended,omitzero"`
	Took  policy.Duration `json:"took,omitzero"`
	// Why is the cause of a failure.
	Why string `json:"why,omitempty"`
	// Step is the time at which State was entered.
	Step time.Time `json:"step,omitzero"`
}

// StageState is the present step or the outcome of a stage of a promotion. It is written to disk before the
// step starts, so that a restart knows which work may have been done.
type StageState string

// The states of a stage of a promotion, in the order in which they occur.
const (
	StagePending   StageState = "pending"   // not started
	StageWaiting   StageState = "waiting"   // needs a person's approval
	StageChecking  StageState = "checking"  // running the checks that precede the promotion
	StagePromoting StageState = "promoting" // executing the plan
	StageDeploying StageState = "deploying" // running the deploy command
	StageVerifying StageState = "verifying" // running the checks that follow the promotion
	StageUndoing   StageState = "undoing"   // undoing the promotion
	StageDone      StageState = "done"
	StageFailed    StageState = "failed"     // the target is as before
	StageStuck     StageState = "stuck"      // the undo failed
	StageUndone    StageState = "taken back" // promoted, then undone; the target is as before
)

// Ended reports whether a stage of a promotion is over, successfully or not.
func (s StageState) Ended() bool {
	switch s {
	case StageDone, StageFailed, StageStuck, StageUndone:
		return true
	}
	return false
}

// A StageApproval says who allowed a stage of a promotion, such as production, to start, and when.
type StageApproval struct {
	By   string    `json:"by"`
	When time.Time `json:"when"`
	// Asked is set if a person approved; otherwise the profile requires no approval.
	Asked bool `json:"asked"`
	// Plan is the fingerprint of the approved plan.
	Plan string `json:"plan,omitempty"`
}

// Current returns the index of the first stage that is not done, at which the promotion continues; false if
// all are done.
func (p *Pipeline) Current() (int, bool) {
	for i := range p.Stages {
		if p.Stages[i].State != StageDone {
			return i, true
		}
	}
	return 0, false
}

// Target returns the directory to which stage i of the promotion copies files. A deploy stage without a
// target has that of the nearest earlier stage with one. The default is the workspace.
func (p *Pipeline) Target(i int) string {
	if s := p.Stages[i]; s.Target != "" || s.Deploy == nil {
		if s.Target != "" {
			return s.Target
		}
		return p.Workspace
	}
	for i--; i >= 0; i-- {
		if t := p.Stages[i].Target; t != "" {
			return t
		}
	}
	return p.Workspace
}

// HasChanges reports whether the stage of a promotion checks and promotes files. A deploy stage does not: it
// runs a command.
func (s *StageRun) HasChanges() bool { return s.Deploy == nil }

// Error returns an error that says that the promotion p of a sandbox failed because of err, of the given
// kind. hints are the commands that the user may run then.
func Error(p *Pipeline, kind, err error, hints ...string) error {
	return &errs.Error{Op: "promoting " + p.Sandbox, Kind: kind, Err: err, Hints: hints}
}

// Has reports whether the promotion with this identifier was made by one of the stages of the pipeline, a
// promotion through several stages.
func (p *Pipeline) Has(promotion string) bool {
	for _, s := range p.Stages {
		if s.Promotion == promotion {
			return true
		}
	}
	return false
}
