package api

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/pick"
)

// A Select is the part of a request that selects the changes of a sandbox to promote, and the target.
type Select struct {
	Only        []string `json:"only,omitempty" doc:"only changes at or below these paths or patterns, absolute or relative to the workspace"`
	Target      string   `json:"target,omitempty" doc:"the absolute directory that receives the changes; by default the workspace"`
	RefuseDrift bool     `json:"refuse_drift,omitempty" doc:"make each path that the real tree has changed too a conflict"`
	Allow       *Allow   `json:"allow,omitempty"`

	Hunks map[string][]string `json:"hunks,omitempty" doc:"by the absolute paths of changed text files, the IDs of the hunks to promote, and no others of these files; commits then stay in the sandbox"`
}

// An Allow is the part of a request that approves changes that would otherwise not be promoted, such as
// devices.
type Allow struct {
	Paths        []string `json:"paths,omitempty" doc:"all changes at or below these paths or patterns"`
	SetID        bool     `json:"setid,omitempty" doc:"set-user-id and set-group-id files"`
	Devices      bool     `json:"devices,omitempty"`
	Capabilities bool     `json:"capabilities,omitempty" doc:"file capabilities"`
}

func (s Select) options() (o reconcile.PlanOptions, err error) {
	if s.Target != "" && !filepath.IsAbs(s.Target) {
		return o, errs.New("planning", s.Target, errs.ErrInvalid, "the target is no absolute path")
	}
	if s.Target != "" && s.Hunks != nil {
		return o, errs.New("planning", s.Target, errs.ErrInvalid, "target and hunks exclude each other")
	}
	o.Only, o.Target = s.Only, s.Target
	if s.RefuseDrift {
		o.Drift = reconcile.RefuseDrift
	}
	if s.Allow != nil {
		o.Allow = approval.Allow{SetID: s.Allow.SetID, Devices: s.Allow.Devices, Capabilities: s.Allow.Capabilities, Paths: s.Allow.Paths}
		if err := o.Allow.Validate(); err != nil {
			return o, errs.New("planning", "", errs.ErrInvalid, err.Error())
		}
	}
	return o, nil
}

// A Conflict is a path that both the sandbox and the real tree changed, in a reply of the HTTP API.
type Conflict struct {
	Path string   `json:"path" doc:"absolute"`
	Kind string   `json:"kind"`
	Why  string   `json:"why"`
	Also []string `json:"also,omitempty" doc:"more paths that its answer resolves"`
}

func conflictsOf(all []reconcile.Conflict) []Conflict {
	list := []Conflict{}
	for _, c := range all {
		list = append(list, Conflict{c.Path, string(c.Kind), c.Why, c.Also})
	}
	return list
}

// A Plan is a reply of the HTTP API: the changes that a promotion would make to the real tree.
type Plan struct {
	Fingerprint string     `json:"fingerprint" doc:"identifies the target and every step with its content; give it to promote"`
	Sandbox     string     `json:"sandbox"`
	Target      string     `json:"target"`
	Made        time.Time  `json:"made"`
	Steps       []Step     `json:"steps" nullable:"false" doc:"sorted by path"`
	Conflicts   []Conflict `json:"conflicts" nullable:"false" doc:"what forbids a promotion until it is answered"`
	Held        []Held     `json:"held" nullable:"false" doc:"what forbids a promotion until it is allowed"`
	Allow       []string   `json:"allow,omitempty" doc:"the shortest paths that allow all of held"`
	Skipped     []string   `json:"skipped,omitempty" doc:"sockets, which only their server can make"`
	Elsewhere   int        `json:"elsewhere" doc:"how many changes outside the workspace it leaves out"`
	Commits     []string   `json:"commits,omitempty" doc:"the branches and tags that it moves or stores"`
}

// A Step is one change that a promotion would make to the real tree, in the [Plan] of the promotion.
type Step struct {
	Path   string   `json:"path" doc:"absolute"`
	Do     string   `json:"do" enum:"add,change,delete"`
	What   []string `json:"what,omitempty" doc:"what changes"`
	Merged bool     `json:"merged,omitempty" doc:"the result combines both sides"`
	Git    bool     `json:"git,omitempty" doc:"a file of a git repository, which snapfs computes"`
	From   string   `json:"from,omitempty" doc:"its path in the sandbox, where that is another one"`
}

// A Held is a change, in the [Plan] of a promotion, that is not promoted until the client approves it.
type Held struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

func planOf(p *reconcile.Plan) Plan {
	r := Plan{
		Fingerprint: p.Fingerprint, Sandbox: p.Sandbox, Target: p.Target, Made: p.Made, Steps: []Step{}, Conflicts: conflictsOf(p.Conflicts), Held: []Held{},
		Allow: p.Allow, Skipped: p.Skipped, Elsewhere: p.Elsewhere,
	}
	for _, s := range p.Steps {
		r.Steps = append(r.Steps, Step{s.Path, s.Do, s.What, s.Merged, s.Git, s.From})
	}
	for _, h := range append(p.Labelled[:len(p.Labelled):len(p.Labelled)], p.NeedsApproval...) {
		r.Held = append(r.Held, Held(h))
	}
	for _, g := range p.Git {
		for _, ref := range g.Refs {
			r.Commits = append(r.Commits, ref.Ref)
		}
	}
	return r
}

type planInput struct {
	Named
	Authorization string  `header:"Authorization" hidden:"true"`
	Body          *Select `required:"false"`
}

type planOutput struct{ Body Plan }

type hunksInput struct {
	Named
	Body *struct {
		Only []string `json:"only,omitempty" doc:"only changes at or below these paths or patterns, absolute or relative to the workspace"`
	} `required:"false"`
}

// A Hunk is, in a reply of the HTTP API, one hunk of the change of a text file. A client can promote it without
// the others.
type Hunk struct {
	ID   string `json:"id" doc:"identifies the hunk by its file and its lines"`
	Path string `json:"path" doc:"absolute"`
	Text string `json:"text" doc:"the hunk, as in a patch"`
}

type hunksOutput struct {
	Body struct {
		Hunks []Hunk `json:"hunks" nullable:"false" doc:"in the order of the files, and of the lines in each"`
	}
}

type promoteInput struct {
	Named
	Body *struct {
		Select
		Plan   string   `json:"plan,omitempty" maxLength:"64" doc:"promote only if the plan has this fingerprint, or at least its first 12 characters"`
		Mine   []string `json:"mine,omitempty" doc:"answer conflicts at these paths with the sandbox's version"`
		Theirs []string `json:"theirs,omitempty" doc:"answer conflicts at these paths with the real tree's version"`
		DryRun bool     `json:"dry_run,omitempty" doc:"check everything and change nothing"`
	} `required:"false"`
}

// A Promoted is a reply of the HTTP API: the result of a promotion.
type Promoted struct {
	ID        string   `json:"id,omitempty" doc:"the promotion, for undo; missing if there was nothing to do"`
	Sandbox   string   `json:"sandbox"`
	Target    string   `json:"target"`
	Changes   int      `json:"changes" doc:"how many paths changed, or would with dry_run"`
	Already   []string `json:"already,omitempty" doc:"paths that had the planned state already"`
	Skipped   []string `json:"skipped,omitempty" doc:"sockets, which were left out"`
	Elsewhere int      `json:"elsewhere" doc:"how many changes outside the workspace were left out"`
}

type promoteOutput struct{ Body Promoted }

// A Promotion describes, in a reply of the HTTP API, a finished promotion that a client can undo.
type Promotion struct {
	ID      string    `json:"id"`
	Sandbox string    `json:"sandbox"`
	Target  string    `json:"target"`
	When    time.Time `json:"when"`
	Changes int       `json:"changes"`
}

type promotionsOutput struct {
	Body struct {
		Promotions []Promotion `json:"promotions" nullable:"false"`
	}
}

type undoInput struct {
	ID   string `path:"id" maxLength:"128" doc:"the promotion"`
	Body *struct {
		Paths []string `json:"paths,omitempty" doc:"undo only these absolute paths and what is below them"`
	} `required:"false"`
}

// An Undone is a reply of the HTTP API: the result of undoing a promotion.
type Undone struct {
	ID      string   `json:"id"`
	Sandbox string   `json:"sandbox"`
	Targets []string `json:"targets" nullable:"false"`
	Changes int      `json:"changes" doc:"how many paths were restored"`
}

type undoOutput struct{ Body Undone }

func (a *API) addPromotions() {
	const path = "/v1/sandboxes/{name}"
	add(a, route{
		scope: token.Read, method: http.MethodPost, path: path + "/plan", id: "plan", summary: "Describe what a promotion would do",
		detail: "Merges the sandbox's changes with those of the real tree, and changes nothing.",
	}, a.plan)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/hunks", id: "list-hunks", summary: "List the hunks of changed text files",
		detail: "Each hunk can be promoted without the others of its file. The server makes a fork of the sandbox for a moment, and changes nothing.",
	}, a.hunks)
	add(a, route{
		scope: token.Promote, method: http.MethodPost, path: path + "/promote", id: "promote", summary: "Promote a sandbox's changes to the real tree",
		detail: "All or nothing. The status is 409 where the plan has conflicts or is another one by now, and 403 where a change needs approval.",
	}, a.promote)
	add(a, route{scope: token.Read, method: http.MethodGet, path: "/v1/promotions", id: "list-promotions", summary: "List the promotions that can be undone"},
		func(ctx context.Context, _ *struct{}) (*promotionsOutput, error) {
			e, err := a.o.Open(ctx)
			if err != nil {
				return nil, err
			}
			all, err := e.Reconcile.Promotions()
			out := &promotionsOutput{}
			out.Body.Promotions = []Promotion{}
			for _, p := range all {
				out.Body.Promotions = append(out.Body.Promotions, Promotion{p.Group, p.Sandbox, p.Path, p.When, p.Applied})
			}
			return out, err
		})
	add(a, route{
		scope: token.Promote, method: http.MethodPost, path: "/v1/promotions/{id}/undo", id: "undo", summary: "Undo a promotion",
		detail: "Restores what was there before, as long as nobody has changed the result; else the status is 409 and nothing changes.",
	}, a.undo)
}

func (a *API) plan(ctx context.Context, in *planInput) (*planOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	var s Select
	if in.Body != nil {
		s = *in.Body
	}
	o, err := s.options()
	if err != nil {
		return nil, err
	}
	var p *reconcile.Plan
	if s.Hunks != nil { // it makes a fork
		if err := a.authorize(ctx, in.Authorization, token.Run); err != nil {
			return nil, err
		}
		p, err = pick.Plan(ctx, e, in.Name, o, s.Hunks)
	} else {
		p, err = e.Reconcile.PlanOf(ctx, in.Name, o)
	}
	if err != nil {
		return nil, err
	}
	return &planOutput{planOf(p)}, nil
}

func (a *API) hunks(ctx context.Context, in *hunksInput) (*hunksOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	var only []string
	if in.Body != nil {
		only = in.Body.Only
	}
	all, err := pick.Hunks(ctx, e, in.Name, only)
	if err != nil {
		return nil, err
	}
	out := &hunksOutput{}
	out.Body.Hunks = []Hunk{}
	for _, h := range all {
		out.Body.Hunks = append(out.Body.Hunks, Hunk(h))
	}
	return out, nil
}

func (a *API) promote(ctx context.Context, in *promoteInput) (*promoteOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	var o reconcile.PromoteOptions
	if in.Body != nil {
		if o.PlanOptions, err = in.Body.options(); err != nil {
			return nil, err
		}
		o.Plan, o.Mine, o.Theirs, o.DryRun = in.Body.Plan, in.Body.Mine, in.Body.Theirs, in.Body.DryRun
	}
	var p reconcile.Promoted
	if in.Body != nil && in.Body.Hunks != nil {
		var r pick.Result
		r, err = pick.PromoteChosen(ctx, e, in.Name, o, in.Body.Hunks)
		p = r.Promoted
	} else {
		p, err = e.Reconcile.Promote(ctx, in.Name, o)
	}
	if err != nil {
		return nil, err
	}
	return &promoteOutput{Promoted{p.ID, p.Sandbox, p.Target, p.Changes, p.Already, p.Skipped, p.Elsewhere}}, nil
}

func (a *API) undo(ctx context.Context, in *undoInput) (*undoOutput, error) {
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	var paths []string
	if in.Body != nil {
		paths = in.Body.Paths
	}
	u, err := e.Reconcile.UndoPaths(ctx, in.ID, paths)
	if err != nil {
		return nil, err
	}
	return &undoOutput{Undone{u.ID, u.Sandbox, append([]string{}, u.Paths...), u.Changes}}, nil
}
