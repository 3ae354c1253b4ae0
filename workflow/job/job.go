package job

import (
	"cmp"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/errs"
)

// A Spec is the definition of a job: command, check, sandbox and what to do with the result. Its submitter
// sets it, and it does not change.
type Spec struct {
	// Workspace is the absolute path of the directory to clone, and Dir the one in which the commands start.
	Workspace string `json:"workspace"`
	Dir       string `json:"dir"`
	// Command are the command's arguments, and Check those of one that must succeed afterwards; none for no check.
	// Env are the variables of both.
	Command []string `json:"command"`
	Check   []string `json:"check,omitempty"`
	Env     []string `json:"env,omitempty"`
	// Backend, Frozen and Policy are as for a new sandbox.
	Backend string         `json:"backend,omitempty"`
	Frozen  bool           `json:"frozen,omitempty"`
	Policy  catalog.Policy `json:"policy"`
	// Effects are what the command changes or uses, as its submitter declared, see [catalog.Effects]; none means
	// unknown. The Direct of Policy decides by them and by Command whether the job runs without a sandbox.
	Effects []string `json:"effects,omitempty"`
	// Then says what becomes of a result that passed.
	Then Then `json:"then"`
	// Stage is the last stage of [Stages], and Profile the absolute path of the profile; "" for the workspace's.
	Stage   string `json:"stage,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Class decides which of the queued jobs is next.
	Class Class `json:"class"`
	// Timeout bounds the command and its check; 0 is no limit. A job that has not begun at Deadline fails.
	Timeout  time.Duration `json:"timeout_ns,omitempty"`
	Deadline time.Time     `json:"deadline,omitzero"`
	// Trigger is the number of the trigger that submitted the job, and Occurrence says for what; 0 and "" for a person.
	Trigger    int    `json:"by_trigger,omitempty"`
	Occurrence string `json:"occurrence,omitempty"`
}

// Shown returns s as snapfs shows it: without the values of its variables, which may be secrets, and with its commands
// as the events have them, redacted if a rule of the policy redacts; see [leak.Redacted].
func (s Spec) Shown() Spec {
	s.Command, s.Check = leak.Redacted(&s.Policy, s.Command), leak.Redacted(&s.Policy, s.Check)
	s.Env, s.Policy = catalog.VariableNames(s.Env), s.Policy.Shown()
	return s
}

// Then says how snapfs continues with the result of a job, a submitted command, after its check has passed:
// it waits for approval, or promotes the result.
type Then string

// The values of Then: how snapfs continues with the result of a job, a submitted command, after its check has
// passed.
const (
	Hold    Then = "hold"    // it waits until a person approves its plan
	Promote Then = "promote" // it is merged into the workspace; a conflict makes it wait
	Stages  Then = "stages"  // it goes through the stages of a profile
)

// A Class is the urgency of a job, a submitted command: a worker begins jobs of a more urgent class first.
type Class string

// The classes of urgency of jobs (submitted commands), in the order in which workers begin them.
const (
	Urgent Class = "urgent"
	Normal Class = "normal"
	Batch  Class = "batch"
)

// Classes returns the classes of urgency of jobs (submitted commands), in the order in which workers begin
// them.
func Classes() []Class { return []Class{Urgent, Normal, Batch} }

// A State says how far a job, a submitted command, has got: queued, running, waiting for a person, or how it
// ended.
type State string

// The states of a job, a submitted command. From Done on they are final: nothing more happens.
const (
	Queued    State = "queued"
	Running   State = "running"
	Promoting State = "promoting"
	Waiting   State = "waiting" // for a person; Why says what for
	Done      State = "done"
	Failed    State = "failed"   // the command, its check or the promotion; Why says how
	Rejected  State = "rejected" // a person did not approve the result
	Cancelled State = "cancelled"
)

// Final reports whether a job in this state has ended, so that nothing more happens to it.
func (s State) Final() bool { return !slices.Contains([]State{Queued, Running, Promoting, Waiting}, s) }

// A Job is a submitted command with its progress, as stored in the job's directory.
type Job struct {
	// Number names the job. Numbers begin at 1 and are not used again while the job is stored.
	Number int `json:"job"`
	Spec
	State State `json:"state"`
	// Why explains the state where it does not say enough.
	Why string `json:"why,omitempty"`
	// Submitted, Began and Ended are the times of those steps.
	Submitted time.Time `json:"submitted"`
	Began     time.Time `json:"began,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// Tries counts how often a worker began it.
	Tries int `json:"tries,omitempty"`
	// Direct is the reason for which the command ran in the real workspace, without a sandbox; "" if it did not.
	Direct string `json:"without_sandbox,omitempty"`
	// Exit is the exit status of the command, and Checked that of the check; nil if it did not end.
	Exit    *int `json:"exit,omitempty"`
	Checked *int `json:"checked,omitempty"`
	// Sandbox holds the result; "" if there is none, or no longer. Plan is the fingerprint of the plan that a person
	// decides on, and Changes the number of its steps.
	Sandbox string `json:"sandbox,omitempty"`
	// SandboxID identifies the sandbox once the result has passed: a later one of the same name is another one.
	SandboxID string `json:"sandbox_id,omitempty"`
	Plan      string `json:"plan,omitempty"`
	Changes   int    `json:"changes,omitempty"`
	// Promotion is the promotion's name for undo; "" if nothing was promoted.
	Promotion string `json:"promotion,omitempty"`
	// Decided is the user who approved or rejected it, or cancelled it before a worker began it.
	Decided string `json:"decided,omitempty"`
}

// needsWorker reports whether a worker has something to do for the job, a submitted command. It has, too, if
// the job has ended but its sandbox still exists.
func (j *Job) needsWorker() bool {
	return j.State != Waiting && (!j.State.Final() || j.Sandbox != "")
}

// Name returns the name under which the job's sandbox is created.
func (j *Job) Name() string { return "job-" + strconv.Itoa(j.Number) }

// check returns ErrInvalid if a job as defined by s cannot be carried out, for example because it has no
// command.
func (s *Spec) check() error {
	const op = "submitting a job"
	switch {
	case len(s.Command) == 0:
		return errs.New(op, "", errs.ErrInvalid, "it has no command")
	case !slices.Contains([]Then{Hold, Promote, Stages}, s.Then):
		return errs.New(op, "", errs.ErrInvalid, fmt.Sprintf("%q is not what can become of a result: hold, promote or stages", s.Then))
	case (s.Then == Stages) != (s.Stage != ""):
		return errs.New(op, "", errs.ErrInvalid, "stages requires a stage, and a stage requires stages")
	case !slices.Contains(Classes(), s.Class):
		return errs.New(op, "", errs.ErrInvalid, fmt.Sprintf("%q is not a class: urgent, normal or batch", s.Class))
	case unknownEffect(s.Effects) != "":
		return errs.New(op, "", errs.ErrInvalid, fmt.Sprintf("%q is not an effect: %s", unknownEffect(s.Effects), strings.Join(catalog.Effects(), ", ")))
	case len(s.Effects) > 1 && slices.Contains(s.Effects, catalog.EffectNone):
		return errs.New(op, "", errs.ErrInvalid, "the effect none excludes all others")
	case s.Timeout < 0:
		return errs.New(op, "", errs.ErrInvalid, "the timeout is negative")
	}
	return nil
}

// unknownEffect returns the first of the declared effects of a job that is none of [catalog.Effects], or "".
func unknownEffect(effects []string) string {
	for _, e := range effects {
		if !slices.Contains(catalog.Effects(), e) {
			return e
		}
	}
	return ""
}

// order sorts jobs (submitted commands), in place, as workers begin them: by class of urgency, then by
// number.
func order(jobs []Job) {
	rank := func(j Job) int { return slices.Index(Classes(), j.Class) }
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Number, b.Number)) })
}

// whoami returns the name of this process's user, to be stored as the submitter of a job, or "unknown".
func whoami() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

// wrongState returns the ErrInvalid for the operation op, such as an approval, which the state of the job j
// does not allow.
func wrongState(op string, j *Job) error {
	text := "it is " + string(j.State)
	if j.Why != "" {
		text += ": " + j.Why
	}
	return &errs.Error{Op: op, Subject: strconv.Itoa(j.Number), Kind: errs.ErrInvalid, Err: errors.New(text), Hints: []string{fmt.Sprintf("snapfs job show %d", j.Number)}}
}
