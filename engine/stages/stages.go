package stages

import (
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
)

// A Pipeline is a promotion through the stages of a profile: what was decided
// so far, as it is written down. It is its own history once it has ended.
type Pipeline struct {
	Format int `json:"format"`
	// ID names it.
	ID string `json:"id"`
	// Sandbox is what is promoted. SandboxID tells it from a later one of the
	// same name.
	Sandbox   string `json:"sandbox"`
	SandboxID string `json:"sandbox_id"`
	Workspace string `json:"workspace"`
	// Profile is the file that the stages were read from, once: what it says
	// later does not count. To is the last stage that was asked for.
	Profile string `json:"profile"`
	To      string `json:"to"`
	// By is the user who began it.
	By    string        `json:"by"`
	Began time.Time     `json:"began"`
	Ended time.Time     `json:"ended,omitzero"`
	State PipelineState `json:"state"`
	// Options are those of each stage's promotion.
	Options PipelineOptions `json:"options"`
	Stages  []StageRun      `json:"stages"`
	// Running: a process works on it now. It is no part of the file.
	Running bool `json:"running"`
	// Content is what the sandbox held when it began, see pipelinecontent.go.
	Content map[string]string
}

// PipelineState says whether a pipeline has ended, and how.
type PipelineState string

// The states of a pipeline. One that is open and not running was interrupted.
const (
	PipelineOpen      PipelineState = "open"
	PipelineDone      PipelineState = "done"
	PipelineFailed    PipelineState = "failed"
	PipelineCancelled PipelineState = "cancelled"
)

// PipelineOptions are the options of a promotion that hold for every stage.
type PipelineOptions struct {
	Only   []string       `json:"only,omitempty"`
	Allow  approval.Allow `json:"allow,omitzero"`
	Mine   []string       `json:"mine,omitempty"`
	Theirs []string       `json:"theirs,omitempty"`
}

// A StageRun is a stage of a pipeline.
type StageRun struct {
	policy.Stage
	State StageState `json:"state"`
	// Plan is the fingerprint of what it carries, and Changes how many paths
	// that changes.
	Plan    string `json:"plan,omitempty"`
	Changes int    `json:"changes"`
	// Held is how many places are held back, and not carried.
	Held int `json:"held,omitempty"`
	// Approved says who let it begin, nil before that.
	Approved *StageApproval `json:"approved,omitempty"`
	// Promotion is what [Engine.Undo] takes, "" where nothing was carried.
	Promotion string `json:"promotion,omitempty"`
	// Began and Ended are of the last attempt; Took is how long all attempts
	// have taken, without waiting for a person.
	Began time.Time       `json:"began,omitzero"`
	Ended time.Time       `json:"ended,omitzero"`
	Took  policy.Duration `json:"took,omitzero"`
	// Why it failed, "" otherwise.
	Why string `json:"why,omitempty"`
	// Step is when its state was entered.
	Step time.Time `json:"step,omitzero"`
}

// StageState is what a stage is in the middle of, or has come to. It is written
// down before anything of it is done.
type StageState string

// The states of a stage, in the order in which it goes through them.
const (
	StagePending   StageState = "pending"   // nothing of it was done
	StageWaiting   StageState = "waiting"   // for a person's approval
	StageChecking  StageState = "checking"  // the checks before run
	StagePromoting StageState = "promoting" // the plan is carried out
	StageDeploying StageState = "deploying" // the command to deploy runs
	StageVerifying StageState = "verifying" // the checks after run
	StageUndoing   StageState = "undoing"   // it is taken back
	StageDone      StageState = "done"
	StageFailed    StageState = "failed"     // the target is as it was before
	StageStuck     StageState = "stuck"      // it could not be taken back
	StageTakenBack StageState = "taken back" // the target is as it was before, and saw it for a while
)

// Ended reports that nothing more happens in a stage of this state.
func (s StageState) Ended() bool {
	switch s {
	case StageDone, StageFailed, StageStuck, StageTakenBack:
		return true
	}
	return false
}

// A StageApproval says who let a stage begin.
type StageApproval struct {
	By   string    `json:"by"`
	When time.Time `json:"when"`
	// Asked: a person was asked. Otherwise the profile does not ask for that.
	Asked bool `json:"asked"`
	// Plan is what was approved.
	Plan string `json:"plan,omitempty"`
}

// Current is the stage that is worked on next: the first that is not done.
func (p *Pipeline) Current() (int, bool) {
	for i := range p.Stages {
		if p.Stages[i].State != StageDone {
			return i, true
		}
	}
	return 0, false
}

// Target is the directory that a stage is about: its own, or that of the nearest
// stage before it that has one, or the workspace.
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

// Carries reports that the stage promotes changes. A stage that deploys does not.
func (s *StageRun) Carries() bool { return s.Deploy == nil }

// Error returns an error of promoting the sandbox of p.
func Error(p *Pipeline, kind, err error, hints ...string) error {
	return &errs.Error{Op: "promoting " + p.Sandbox, Kind: kind, Err: err, Hints: hints}
}

// Has reports whether a promotion is that of one of the stages.
func (p *Pipeline) Has(promotion string) bool {
	for _, s := range p.Stages {
		if s.Promotion == promotion {
			return true
		}
	}
	return false
}
