package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/job"
)

// A Job is a command that nobody waits for, with its progress. Its variables are left out: they may hold secrets.
type Job struct {
	Job       int        `json:"job" doc:"its number"`
	State     string     `json:"state" enum:"queued,running,promoting,waiting,done,failed,rejected,cancelled"`
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
	Exit      *int       `json:"exit,omitempty" doc:"of the command"`
	Checked   *int       `json:"checked,omitempty" doc:"of the check"`
	Sandbox   string     `json:"sandbox,omitempty" doc:"has the result"`
	Plan      string     `json:"plan,omitempty" doc:"the fingerprint of the plan that a person decides on"`
	Changes   int        `json:"changes" doc:"how many steps the plan has"`
	Promotion string     `json:"promotion,omitempty" doc:"for undo"`
	Decided   string     `json:"decided,omitempty" doc:"the user who approved or rejected it"`
}

func jobOf(j *job.Job) Job {
	r := Job{
		Job: j.Number, State: string(j.State), Why: j.Why, Workspace: j.Workspace, Command: append([]string{}, j.Command...), Check: j.Check,
		Then: string(j.Then), Stage: j.Stage, Class: string(j.Class), Submitted: j.Submitted, Exit: j.Exit, Checked: j.Checked,
		Sandbox: j.Sandbox, Plan: j.Plan, Changes: j.Changes, Promotion: j.Promotion, Decided: j.Decided,
	}
	if !j.Began.IsZero() {
		r.Began = &j.Began
	}
	if !j.Ended.IsZero() {
		r.Ended = &j.Ended
	}
	return r
}

type jobsInput struct {
	State string `query:"state" enum:"queued,running,promoting,waiting,done,failed,rejected,cancelled" doc:"only jobs of this state"`
	Ended bool   `query:"ended" doc:"also jobs that have ended"`
}

type jobsOutput struct {
	Body struct {
		Jobs     []Job    `json:"jobs" nullable:"false" doc:"by number"`
		Problems []string `json:"problems,omitempty" doc:"jobs that cannot be read"`
	}
}

// NumberedJob is the job in the path of a route.
type NumberedJob struct {
	Job int `path:"job" minimum:"1" doc:"the job's number"`
}

type approveInput struct {
	NumberedJob
	Body *struct {
		Plan string `json:"plan,omitempty" maxLength:"64" doc:"approve only if the job holds the plan with this fingerprint"`
	} `required:"false"`
}

type jobOutput struct{ Body Job }

func (a *API) addJobs() {
	const path = "/v1/jobs"
	add(a, route{scope: token.Read, method: http.MethodGet, path: path, id: "list-jobs", summary: "List jobs"}, a.jobs)
	add(a, route{scope: token.Read, method: http.MethodGet, path: path + "/{job}", id: "get-job", summary: "Describe a job"},
		func(ctx context.Context, in *NumberedJob) (*jobOutput, error) {
			return a.job(ctx, func(s *job.Store) (*job.Job, error) { return s.Get(in.Job) })
		})
	add(a, route{
		scope: token.Promote, method: http.MethodPost, path: path + "/{job}/approve", id: "approve-job", summary: "Promote the result of a job that waits",
		detail: "Promotes exactly the plan that the job holds, or nothing: the status is 409 if the plan is another one by now, which the job then holds.",
	}, func(ctx context.Context, in *approveInput) (*jobOutput, error) {
		plan := ""
		if in.Body != nil {
			plan = in.Body.Plan
		}
		return a.job(ctx, func(s *job.Store) (*job.Job, error) { return s.Approve(ctx, in.Job, plan) })
	})
	add(a, route{scope: token.Promote, method: http.MethodPost, path: path + "/{job}/reject", id: "reject-job", summary: "Remove the result of a job that waits"},
		func(ctx context.Context, in *NumberedJob) (*jobOutput, error) {
			return a.job(ctx, func(s *job.Store) (*job.Job, error) { return s.Reject(ctx, in.Job) })
		})
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/{job}/cancel", id: "cancel-job", summary: "End a job that is queued or runs",
		detail: "One that runs ends within a second, and is still running in the response.",
	}, func(ctx context.Context, in *NumberedJob) (*jobOutput, error) {
		return a.job(ctx, func(s *job.Store) (*job.Job, error) { return s.Cancel(in.Job) })
	})
	body := &huma.RequestBody{}
	add(a, route{
		edit:   func(op *huma.Operation) { op.RequestBody = body },
		method: http.MethodPost, path: "/v1/hooks/{trigger}", id: "hook", summary: "Submit, approve or reject a job by a signed request",
		detail: "For programs that have the secret of a webhook (snapfs job submit --webhook) and no token. The body is empty, or JSON with action " +
			"(submit, approve or reject), job and plan. A request is valid for five minutes, and one that is repeated submits no second job.",
	}, a.hook)
	body.Required = false // package huma makes a body of bytes required
}

// hookInput is a webhook's request.
type hookInput struct {
	Trigger   int    `path:"trigger" minimum:"1" doc:"the trigger's number"`
	Signature string `header:"X-Snapfs-Signature" doc:"t=SECONDS,v1=HEX: the HMAC-SHA256, with the secret, of SECONDS, a dot and the body"`
	RawBody   []byte
}

func (a *API) hook(ctx context.Context, in *hookInput) (*jobOutput, error) {
	return a.job(ctx, func(s *job.Store) (*job.Job, error) { return s.Hook(ctx, in.Trigger, in.Signature, in.RawBody) })
}

// job answers with the job that do returns.
func (a *API) job(ctx context.Context, do func(s *job.Store) (*job.Job, error)) (out *jobOutput, err error) {
	err = a.with(ctx, func(e *engine.Engine) error {
		j, err := do(job.New(e))
		if err == nil {
			out = &jobOutput{jobOf(j)}
		}
		return err
	})
	return out, err
}

func (a *API) jobs(ctx context.Context, in *jobsInput) (*jobsOutput, error) {
	out := &jobsOutput{}
	err := a.with(ctx, func(e *engine.Engine) error {
		all, err := job.New(e).List()
		all = slices.DeleteFunc(all, func(j job.Job) bool {
			return in.State != "" && string(j.State) != in.State || in.State == "" && !in.Ended && j.State.Final()
		})
		out.Body.Jobs = make([]Job, 0, len(all))
		for i := range all {
			out.Body.Jobs = append(out.Body.Jobs, jobOf(&all[i]))
		}
		if err != nil && len(all) > 0 {
			out.Body.Problems, err = []string{err.Error()}, nil
		}
		return err
	})
	return out, err
}
