package api

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/profile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/job"
)

// A Job describes, in replies of the HTTP API, a command that a worker runs in a sandbox later, and what
// becomes of its result.
type Job struct {
	Job       int        `json:"job" doc:"its number"`
	State     string     `json:"state" enum:"queued,running,promoting,waiting,done,failed,rejected,cancelled" doc:"waiting: for a person; from done on it is over"`
	Why       string     `json:"why,omitempty" doc:"explains the state"`
	Workspace string     `json:"workspace"`
	Command   []string   `json:"command" nullable:"false"`
	Check     []string   `json:"check,omitempty"`
	Then      string     `json:"then" enum:"hold,promote,stages"`
	Stage     string     `json:"stage,omitempty"`
	Class     string     `json:"class" enum:"urgent,normal,batch"`
	Submitted time.Time  `json:"submitted"`
	Began     *time.Time `json:"began,omitempty"`
	Ended     *time.Time `json:"ended,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	Tries     int        `json:"tries" doc:"how often a worker began it"`
	Exit      *int       `json:"exit,omitempty"`
	Checked   *int       `json:"checked,omitempty" doc:"the exit status of the check"`
	Sandbox   string     `json:"sandbox,omitempty" doc:"the sandbox with the result of a job that waits"`
	Plan      string     `json:"plan,omitempty" doc:"the fingerprint of the plan that approve-job promotes"`
	Changes   int        `json:"changes,omitempty" doc:"how many steps the plan has"`
	Promotion string     `json:"promotion,omitempty" doc:"the promotion's name, for undo"`
	Decided   string     `json:"decided,omitempty" doc:"the user who approved or rejected it"`
	Effects   []string   `json:"effects,omitempty" doc:"the effects that its submitter declared"`
	Direct    string     `json:"without_sandbox,omitempty" doc:"why it ran in the real workspace, without a sandbox"`
}

func jobOf(j *job.Job) Job {
	shown := j.Shown()
	out := Job{
		Job: j.Number, State: string(j.State), Why: j.Why, Workspace: j.Workspace, Command: append([]string{}, shown.Command...), Check: shown.Check,
		Then: string(j.Then), Stage: j.Stage, Class: string(j.Class), Submitted: j.Submitted, Tries: j.Tries, Exit: j.Exit, Checked: j.Checked,
		Sandbox: j.Sandbox, Plan: j.Plan, Changes: j.Changes, Promotion: j.Promotion, Decided: j.Decided,
		Effects: j.Effects, Direct: j.Direct,
	}
	for _, t := range []struct {
		from *time.Time
		to   **time.Time
	}{{&j.Began, &out.Began}, {&j.Ended, &out.Ended}, {&j.Deadline, &out.Deadline}} {
		if !t.from.IsZero() {
			*t.to = t.from
		}
	}
	return out
}

// A NewJob is a client's request to submit a job: a command that a worker runs in a sandbox later.
type NewJob struct {
	CommandLine
	Sandbox NewSandbox `json:"sandbox,omitempty" doc:"what the job's sandbox is like, made when a worker begins the job"`
	Check   string     `json:"check,omitempty" doc:"a shell command that must succeed after the command"`
	Then    string     `json:"then,omitempty" enum:"hold,promote,stages" default:"hold" doc:"what becomes of a result that passed: it waits for approval, is promoted, or goes through the profile's stages; the last two also require the scope promote"`
	Stage   string     `json:"stage,omitempty" doc:"of stages: the last one"`
	Class   string     `json:"class,omitempty" enum:"urgent,normal,batch" default:"normal" doc:"decides which job begins first"`
	Timeout string     `json:"timeout,omitempty" example:"1h" doc:"end the command and its check after this time"`
	Within  string     `json:"within,omitempty" example:"2h" doc:"fail the job if it has not begun within this time"`
}

type jobInput struct {
	Authorization string `header:"Authorization" hidden:"true"`
	Body          NewJob
}

type jobOutput struct{ Body Job }

type jobsInput struct {
	After int    `query:"after" minimum:"0" doc:"the last number of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"how many to return"`
	State string `query:"state" enum:"queued,running,promoting,waiting,done,failed,rejected,cancelled" doc:"only jobs of this state"`
}

type jobsOutput struct {
	Body struct {
		Jobs     []Job    `json:"jobs" nullable:"false" doc:"by number"`
		Next     int      `json:"next,omitempty" doc:"after of the next page; missing on the last one"`
		Problems []string `json:"problems,omitempty" doc:"jobs that cannot be read"`
	}
}

// A JobNumber is the part of a request's URL that names a job, a command that a worker runs in a sandbox
// later.
type JobNumber struct {
	Number int `path:"number" minimum:"1" doc:"the job's number"`
}

type approveInput struct {
	JobNumber
	Body *struct {
		Plan string `json:"plan,omitempty" maxLength:"64" doc:"approve only if the job holds the plan with this fingerprint, of which the first 12 digits are enough"`
	} `required:"false"`
}

// A JobOutput is a reply of the HTTP API: the end of the output of a job's command and of its check. A job is
// a command that a worker runs in a sandbox later.
type JobOutput struct {
	Output string `json:"output" doc:"the last 4 KiB of the command's output"`
	Check  string `json:"check" doc:"the last 4 KiB of the check's output"`
}

type jobOutputOutput struct{ Body JobOutput }

func (a *API) addJobs() {
	const path = "/v1/jobs"
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path, id: "submit-job", summary: "Store a command for a worker", status: http.StatusCreated,
		detail: "A worker, snapfs job work, carries it out. When this returns, the job survives a power loss.",
	}, a.submitJob)
	add(a, route{scope: token.Read, method: http.MethodGet, path: path, id: "list-jobs", summary: "List jobs"}, a.listJobs)
	a.addHook()
	one := func(r route, do func(ctx context.Context, s *job.Store, number int) (*job.Job, error)) {
		add(a, r, func(ctx context.Context, in *JobNumber) (*jobOutput, error) {
			s, err := a.jobs(ctx)
			if err != nil {
				return nil, err
			}
			j, err := do(ctx, s, in.Number)
			if err != nil {
				return nil, err
			}
			return &jobOutput{jobOf(j)}, nil
		})
	}
	one(route{scope: token.Read, method: http.MethodGet, path: path + "/{number}", id: "get-job", summary: "Describe a job"},
		func(_ context.Context, s *job.Store, n int) (*job.Job, error) { return s.Get(n) })
	add(a, route{scope: token.Read, method: http.MethodGet, path: path + "/{number}/output", id: "job-output", summary: "Return what the commands of a job printed"}, a.jobOutput)
	add(a, route{
		scope: token.Promote, method: http.MethodPost, path: path + "/{number}/approve", id: "approve-job", summary: "Promote the result of a job that waits",
		detail: "Exactly the plan that the job holds, or nothing: if the real tree or the sandbox has changed since, the job holds the new plan, and waits again.",
	}, a.approveJob)
	one(route{
		scope: token.Promote, method: http.MethodPost, path: path + "/{number}/reject", id: "reject-job", summary: "Remove the result of a job that waits",
		detail: "A stage that waits is undone; earlier stages stay.",
	}, func(ctx context.Context, s *job.Store, n int) (*job.Job, error) { return s.Reject(ctx, n) })
	one(route{
		scope: token.Run, method: http.MethodPost, path: path + "/{number}/cancel", id: "cancel-job", summary: "End a job that is queued or runs",
		detail: "One that runs ends within a second, with all its processes, and is still described as running here.",
	}, func(_ context.Context, s *job.Store, n int) (*job.Job, error) { return s.Cancel(n) })
	add(a, route{
		scope: token.Run, method: http.MethodDelete, path: path + "/{number}", id: "remove-job", summary: "Forget a job that is over", status: http.StatusNoContent,
	}, func(ctx context.Context, in *JobNumber) (*struct{}, error) {
		s, err := a.jobs(ctx)
		if err != nil {
			return nil, err
		}
		return nil, s.Remove(ctx, in.Number)
	})
}

func (a *API) jobs(ctx context.Context) (*job.Store, error) {
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	return job.New(e), nil
}

func (a *API) submitJob(ctx context.Context, in *jobInput) (*jobOutput, error) {
	spec, within, err := a.jobSpec(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	if err := a.mayCarryOut(ctx, in.Authorization, spec, false); err != nil {
		return nil, err
	}
	if within > 0 {
		spec.Deadline = time.Now().Add(within).UTC()
	}
	s, err := a.jobs(ctx)
	if err != nil {
		return nil, err
	}
	j, err := s.Submit(spec)
	if err != nil {
		return nil, err
	}
	return &jobOutput{jobOf(j)}, nil
}

// mayCarryOut returns an error unless the sender of a request may have the job spec carried out without another
// request. header is the request's Authorization header; with webhook, a request that is signed with the webhook's secret can
// approve the job.
func (a *API) mayCarryOut(ctx context.Context, header string, spec job.Spec, webhook bool) error {
	if spec.Then == job.Hold && !webhook {
		return nil
	}
	return a.authorize(ctx, header, token.Promote) // it changes the real tree
}

// jobSpec converts a client's request for a job (a command that a worker runs in a sandbox later) into the
// form that package job takes, without a deadline: within is the time to it; 0 for none. Errors: ErrInvalid.
func (a *API) jobSpec(ctx context.Context, q NewJob) (spec job.Spec, within time.Duration, err error) {
	const op = "submitting a job"
	switch {
	case (q.Stage != "") != (job.Then(q.Then) == job.Stages):
		return spec, 0, errs.New(op, "", errs.ErrInvalid, "stage and then: stages require each other")
	case q.Queue != "" || q.IfRoom || q.Sandbox.Queue != "" || q.Sandbox.IfRoom:
		return spec, 0, errs.New(op, "", errs.ErrInvalid, "a job always waits for capacity; within bounds the wait")
	case q.Sandbox.Name != "":
		return spec, 0, errs.New(op, "", errs.ErrInvalid, "a job names its sandbox itself")
	}
	req, err := a.request(ctx, q.Sandbox)
	if err != nil {
		return spec, 0, err
	}
	c, err := q.in(req.Workspace, hostfs.Environ(os.Environ(), req.Policy.Env))
	if err != nil {
		return spec, 0, err
	}
	req.Policy.Direct = nil // a client may not run commands on the host, whose environment and directory it would choose
	spec = job.Spec{
		Workspace: req.Workspace, Dir: c.Dir, Command: c.Args, Env: c.Env, Backend: req.Backend, Frozen: req.Frozen, Policy: req.Policy,
		Then: job.Then(q.Then), Stage: q.Stage, Class: job.Class(q.Class),
	}
	if q.Sandbox.Profile != "" && q.Sandbox.Profile != profile.None && spec.Then == job.Stages {
		spec.Profile = filepath.Clean(q.Sandbox.Profile)
	}
	if q.Check != "" {
		check, err := CommandLine{Command: q.Check}.in(req.Workspace, nil)
		if err != nil {
			return spec, 0, err
		}
		spec.Check = check.Args
	}
	if spec.Timeout, err = timeoutOf("", q.Timeout); err != nil {
		return spec, 0, err
	}
	within, err = timeoutOf("", q.Within)
	return spec, within, err
}

func (a *API) listJobs(ctx context.Context, in *jobsInput) (*jobsOutput, error) {
	s, err := a.jobs(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.List()
	out := &jobsOutput{}
	out.Body.Jobs = []Job{}
	if err != nil {
		if len(all) == 0 {
			return nil, err
		}
		out.Body.Problems = []string{err.Error()}
	}
	for _, j := range all {
		if j.Number <= in.After || in.State != "" && string(j.State) != in.State {
			continue
		}
		if len(out.Body.Jobs) == in.Limit {
			out.Body.Next = out.Body.Jobs[in.Limit-1].Job
			break
		}
		out.Body.Jobs = append(out.Body.Jobs, jobOf(&j))
	}
	return out, nil
}

func (a *API) approveJob(ctx context.Context, in *approveInput) (*jobOutput, error) {
	s, err := a.jobs(ctx)
	if err != nil {
		return nil, err
	}
	plan := ""
	if in.Body != nil && in.Body.Plan != "" {
		if plan = in.Body.Plan; len(plan) < shortPlan {
			return nil, errs.New("approving a job", "", errs.ErrInvalid, "a fingerprint has at least 12 digits")
		}
	}
	j, err := s.Approve(ctx, in.Number, plan)
	if err != nil {
		return nil, err
	}
	return &jobOutput{jobOf(j)}, nil
}

// shortPlan is how many digits of a promotion plan's fingerprint, its hash, a client that approves a job's
// plan must give at least.
const shortPlan = 12

func (a *API) jobOutput(ctx context.Context, in *JobNumber) (*jobOutputOutput, error) {
	s, err := a.jobs(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.Get(in.Number); err != nil {
		return nil, err
	}
	dir := s.OutputDir(in.Number)
	return &jobOutputOutput{JobOutput{serve.Tail(filepath.Join(dir, "1.out"), maxTail), serve.Tail(filepath.Join(dir, "1.check"), maxTail)}}, nil
}
