package serve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// A PlanRequest is a coding agent's selection of the changes of a sandbox that it wants to promote.
type PlanRequest struct {
	Sandbox string   `json:"sandbox" jsonschema:"the sandbox's name"`
	Paths   []string `json:"paths,omitempty" jsonschema:"promote only changes at or below these paths of the workspace"`
}

// A Plan describes the changes that a promotion would make to the real tree, for an agent and the person who
// approves it.
type Plan struct {
	Sandbox       string     `json:"sandbox"`
	Target        string     `json:"target" jsonschema:"the real directory that a promotion changes"`
	Fingerprint   string     `json:"fingerprint" jsonschema:"identifies every step with its content"`
	Count         int        `json:"count" jsonschema:"how many steps it has, also those not listed"`
	Steps         []Step     `json:"steps" jsonschema:"the first 100"`
	Commits       int        `json:"commits,omitempty" jsonschema:"how many branches and tags it moves or stores"`
	Conflicts     []Conflict `json:"conflicts" jsonschema:"what forbids a promotion until it is resolved; see sandbox_refresh"`
	MoreConflicts int        `json:"more_conflicts,omitempty"`
	Held          []Conflict `json:"held" jsonschema:"changes that only a person can approve, by the command below"`
	MoreHeld      int        `json:"more_held,omitempty"`
	LeftOut       int        `json:"left_out,omitempty" jsonschema:"how many changes outside the workspace it leaves out"`
	Command       string     `json:"command" jsonschema:"the command by which a person promotes exactly this plan"`

	// whole has every step, for the question to the person.
	whole *reconcile.Plan
}

// A Step is one change of the real tree that a promotion would make, in the [Plan] that an agent and a person
// see.
type Step struct {
	Path string `json:"path"`
	Do   string `json:"do" jsonschema:"add, change or delete"`
	Note string `json:"note,omitempty"`
}

// Plan returns the changes that a promotion would make, and changes nothing. Errors: those of
// [reconcile.Reconciler.PlanOf]; ErrDenied for a path outside the workspace.
func (s *Service) Plan(ctx context.Context, q PlanRequest) (Plan, error) {
	o, err := s.planOptions(q)
	if err != nil {
		return Plan{}, err
	}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return Plan{}, err
	}
	p, err := e.Reconcile.PlanOf(ctx, q.Sandbox, o)
	if err != nil {
		return Plan{}, err
	}
	r := Plan{
		Sandbox: q.Sandbox, Target: p.Target, Fingerprint: p.Fingerprint, Steps: []Step{}, LeftOut: p.Elsewhere,
		Command: s.promoteCommand(q, p), Held: []Conflict{}, whole: p,
	}
	for _, step := range listed(p) {
		if r.Count++; len(r.Steps) < mostPaths {
			r.Steps = append(r.Steps, Step{tame(s.relative(step.Path)), step.Do, tame(s.note(step))})
		}
	}
	r.Commits = len(refsOf(p.Git))
	r.Conflicts, r.MoreConflicts = s.conflicts(p.Conflicts)
	for _, h := range p.NeedsApproval[:min(len(p.NeedsApproval), mostPaths)] {
		r.Held = append(r.Held, Conflict{tame(s.relative(h.Path)), tame(h.Why)})
	}
	for _, l := range p.Labelled[:min(len(p.Labelled), mostPaths-len(r.Held))] {
		r.Held = append(r.Held, Conflict{tame(s.relative(l.Path)), tame(l.Why)})
	}
	r.MoreHeld = len(p.NeedsApproval) + len(p.Labelled) - len(r.Held)
	return r, nil
}

// planOptions returns the options for planning a promotion that an agent asks for: only changes inside the
// workspace, and none that needs a person's approval.
func (s *Service) planOptions(q PlanRequest) (o reconcile.PlanOptions, err error) {
	o.Only, err = s.Rules.allInside(q.Paths)
	return o, err
}

// listed returns the steps of a promotion plan that a person is to read. It leaves out steps that change only
// a file's time, and those on git's own files.
func listed(p *reconcile.Plan) []reconcile.Step {
	return slices.DeleteFunc(slices.Clone(p.Steps), func(s reconcile.Step) bool { return s.Git || s.TimeOnly() })
}

func (s *Service) note(step reconcile.Step) string {
	switch {
	case step.Merged:
		return "merged with the real tree's version"
	case step.From != "":
		return "from " + s.relative(step.From)
	case step.Do == "change" && len(step.What) > 0 && step.What[0] != "content":
		return strings.Join(step.What, ", ")
	}
	return ""
}

// refsOf returns a line of text for each git branch or tag that a promotion plan moves, or whose commits it
// stores under another name.
func refsOf(reports []gitresult.Report) (lines []string) {
	for _, r := range reports {
		for _, ref := range r.Refs {
			line := strings.TrimSpace("commits of "+ref.Ref+" in "+r.Repository+" "+string(ref.How)+" "+ref.As) + " at " + ref.To
			lines = append(lines, line)
		}
	}
	return lines
}

// promoteCommand returns the command line of snapfs with which a person promotes exactly the plan p.
func (s *Service) promoteCommand(q PlanRequest, p *reconcile.Plan) string {
	args := []string{"promote", q.Sandbox}
	for _, path := range q.Paths {
		if abs, err := s.Rules.inside(path); err == nil {
			args = append(args, "--only", abs)
		}
	}
	for _, path := range p.Allow {
		args = append(args, "--allow", path)
	}
	return s.Rules.Command(append(args, "--plan", p.Fingerprint[:12])...)
}

// mostAsked is how many steps of a promotion plan the question to a person shows at most. A person cannot
// judge more of them in a dialog; a longer plan is refused.
const mostAsked = 40

// Question returns the text that asks a person to approve a plan: every step, with names that cannot forge a line.
// Errors: ErrConflict and ErrDenied for a plan that cannot be promoted or that is too long to be shown; its hint is
// the command for the person.
func (s *Service) Question(p Plan) (string, error) {
	if err := p.whole.Refused(reconcile.PlanOptions{}); err != nil {
		return "", errs.With("promoting", "", err, p.Command+"   # for a person")
	}
	steps, refs := listed(p.whole), refsOf(p.whole.Git)
	if len(steps)+len(refs) > mostAsked {
		return "", errs.New("promoting", p.Sandbox, errs.ErrDenied, "the plan has too many steps to be shown in a question",
			p.Command+"   # for a person", "sandbox_promote with paths, a part at a time")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Promote %s of the sandbox %s to %s?\n\n", count(len(steps), "change"), p.Sandbox, pathlist.Printable(p.Target))
	for _, step := range steps {
		line := step.Do + "  " + pathlist.Printable(s.relative(step.Path))
		if note := s.note(step); note != "" {
			line += "  (" + pathlist.Printable(note) + ")"
		}
		fmt.Fprintln(&b, line)
	}
	for _, line := range refs {
		fmt.Fprintln(&b, pathlist.Printable(line))
	}
	if p.LeftOut > 0 {
		fmt.Fprintf(&b, "%s outside the workspace will not be promoted\n", count(p.LeftOut, "change"))
	}
	fmt.Fprintf(&b, "\nplan %s; read its content with: %s\n", p.Fingerprint[:12], s.Rules.Command("diff", p.Sandbox, "--patch"))
	return b.String(), nil
}

// Nothing reports whether the promotion plan has no steps, so that there is nothing to promote.
func (p *Plan) Nothing() bool { return len(p.whole.Steps) == 0 && len(p.whole.Git) == 0 }

// Refusal returns the error for an agent whose client cannot ask a person to approve the plan. why is the
// reason; the hint is the command by which a person promotes the plan.
func (p *Plan) Refusal(why string) error {
	return errs.New("promoting", p.Sandbox, errs.ErrDenied, why+"; a person can promote this plan", p.Command)
}

// A Promoted is the result of [Service.Promote] for an agent: which changes the promotion made to the real
// tree, and how a person undoes it.
type Promoted struct {
	Sandbox string `json:"sandbox"`
	Target  string `json:"target"`
	Changes int    `json:"changes" jsonschema:"how many paths of the real tree changed"`
	ID      string `json:"id,omitempty" jsonschema:"the promotion's name; none if there was nothing to do"`
	Undo    string `json:"undo,omitempty" jsonschema:"the command by which a person undoes it"`
	LeftOut int    `json:"left_out,omitempty" jsonschema:"how many changes outside the workspace were left out"`
}

// Promote carries out exactly the promotion plan with this fingerprint (its hash), or nothing. The caller
// must have a person's approval of that plan. Errors: ErrDrifted if the plan is another one now; those of
// [reconcile.Reconciler.Promote].
func (s *Service) Promote(ctx context.Context, q PlanRequest, fingerprint string) (Promoted, error) {
	o, err := s.planOptions(q)
	if err != nil {
		return Promoted{}, err
	}
	if len(fingerprint) != 64 {
		return Promoted{}, errs.New("promoting", q.Sandbox, errs.ErrInvalid, "a promotion requires a plan's whole fingerprint")
	}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return Promoted{}, err
	}
	done, err := e.Reconcile.Promote(ctx, q.Sandbox, reconcile.PromoteOptions{PlanOptions: o, Plan: fingerprint})
	if err != nil {
		return Promoted{}, err
	}
	r := Promoted{Sandbox: q.Sandbox, Target: done.Target, Changes: done.Changes, ID: done.ID, LeftOut: done.Elsewhere}
	if done.ID != "" {
		r.Undo = s.Rules.Command("undo", done.ID)
	}
	return r, nil
}
