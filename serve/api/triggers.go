package api

import (
	"context"
	"net/http"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/job"
)

// A Trigger describes, in replies of the HTTP API, what submits a job by itself: a schedule, changed files, or
// signed requests.
type Trigger struct {
	Trigger   int        `json:"trigger" doc:"its number"`
	Every     string     `json:"every,omitempty" doc:"the time between two jobs"`
	Changed   string     `json:"when_changed,omitempty" doc:"the pattern of files, a change of which submits a job"`
	Webhook   bool       `json:"webhook,omitempty" doc:"whether requests to /v1/hooks submit jobs"`
	Next      *time.Time `json:"next,omitempty" doc:"when the next job is due"`
	Last      int        `json:"last,omitempty" doc:"the number of its newest job"`
	Workspace string     `json:"workspace"`
	Command   []string   `json:"command" nullable:"false"`
	Check     []string   `json:"check,omitempty"`
	Then      string     `json:"then" enum:"hold,promote,stages"`
	Stage     string     `json:"stage,omitempty"`
	Class     string     `json:"class" enum:"urgent,normal,batch"`
	Within    string     `json:"within,omitempty" doc:"the time from the submission of each job to its deadline"`
	Secret    string     `json:"secret,omitempty" doc:"the key of a webhook: only where it was just made"`
}

func triggerOf(t *job.Trigger) Trigger {
	shown := t.Shown()
	out := Trigger{
		Trigger: t.Number, Changed: t.Changed, Webhook: t.Webhook, Last: t.Last, Workspace: t.Workspace, Command: append([]string{}, shown.Command...),
		Check: shown.Check, Then: string(t.Then), Stage: t.Stage, Class: string(t.Class),
	}
	if t.Every > 0 {
		out.Every, out.Next = units.FormatDuration(t.Every), &t.Next
	}
	if t.Within > 0 {
		out.Within = units.FormatDuration(t.Within)
	}
	return out
}

// A NewTrigger is a client's request to submit a job again and again, with exactly one of the conditions.
type NewTrigger struct {
	Job     NewJob `json:"job" doc:"the job that it submits"`
	Every   string `json:"every,omitempty" example:"24h" doc:"submit it again and again, with this time between"`
	Changed string `json:"when_changed,omitempty" example:"src/**/*.proto" doc:"submit it whenever files of the workspace that match this pattern have changed"`
	Webhook bool   `json:"webhook,omitempty" doc:"submit it for each request to /v1/hooks that is signed with the secret in the reply; also requires the scope promote, because such a request can approve a job"`
}

type triggerInput struct {
	Authorization string `header:"Authorization" hidden:"true"`
	Body          NewTrigger
}

type triggerOutput struct{ Body Trigger }

type triggersOutput struct {
	Body struct {
		Triggers []Trigger `json:"triggers" nullable:"false" doc:"by number, at most 1,000"`
		Problems []string  `json:"problems,omitempty" doc:"triggers that cannot be read"`
	}
}

// A triggerNumber is the part of a request's URL that names a trigger, which submits jobs by itself.
type triggerNumber struct {
	Number        int    `path:"number" minimum:"1" doc:"the trigger's number"`
	Authorization string `header:"Authorization" hidden:"true"`
}

func (a *API) addTriggers() {
	const path = "/v1/triggers"
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path, id: "new-trigger", summary: "Submit a job by a schedule, a change of files, or signed requests", status: http.StatusCreated,
		detail: "A job that is promoted without approval also requires the scope promote. Workers, snapfs job work, look at schedules and files. The trigger goes on when the token of its client has expired or was removed.",
	}, a.newTrigger)
	add(a, route{scope: token.Read, method: http.MethodGet, path: path, id: "list-triggers", summary: "List what submits jobs by itself"}, a.listTriggers)
	add(a, route{
		scope: token.Run, method: http.MethodDelete, path: path + "/{number}", id: "remove-trigger", summary: "Remove a trigger", status: http.StatusNoContent,
		detail: "The jobs that it has submitted stay. Requires the scope promote if making it does.",
	}, func(ctx context.Context, in *triggerNumber) (*struct{}, error) {
		s, err := a.jobs(ctx)
		if err != nil {
			return nil, err
		}
		return nil, s.RemoveTrigger(in.Number, func(t *job.Trigger) error {
			return a.mayCarryOut(ctx, in.Authorization, t.Spec, t.Webhook)
		})
	})
}

func (a *API) newTrigger(ctx context.Context, in *triggerInput) (*triggerOutput, error) {
	spec, within, err := a.jobSpec(ctx, in.Body.Job)
	if err != nil {
		return nil, err
	}
	if err := a.mayCarryOut(ctx, in.Authorization, spec, in.Body.Webhook); err != nil {
		return nil, err
	}
	t := job.Trigger{Spec: spec, Within: within, Changed: in.Body.Changed, Webhook: in.Body.Webhook}
	if in.Body.Every != "" {
		if t.Every, err = units.ParseDuration(in.Body.Every); err != nil {
			return nil, errs.New("storing a trigger", "", errs.ErrInvalid, "every: "+err.Error())
		}
	}
	s, err := a.jobs(ctx)
	if err != nil {
		return nil, err
	}
	made, secret, err := s.AddTrigger(ctx, t)
	if err != nil {
		return nil, err
	}
	out := triggerOf(made)
	out.Secret = secret
	return &triggerOutput{out}, nil
}

func (a *API) listTriggers(ctx context.Context, _ *struct{}) (*triggersOutput, error) {
	s, err := a.jobs(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.Triggers()
	out := &triggersOutput{}
	out.Body.Triggers = []Trigger{}
	if err != nil {
		if len(all) == 0 {
			return nil, err
		}
		out.Body.Problems = []string{err.Error()}
	}
	for i := range all {
		out.Body.Triggers = append(out.Body.Triggers, triggerOf(&all[i]))
	}
	return out, nil
}
