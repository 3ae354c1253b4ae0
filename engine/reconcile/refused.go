package reconcile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// Refused returns why the plan, made with the options o, may not be carried out, or nil. Conflicts are an
// ErrConflict, or an ErrDrifted with RefuseDrift; for changes that need approval it is the ApprovalError, and for
// content labelled secret an ErrDenied that no option answers.
func (p *Plan) Refused(o PlanOptions) error {
	if n := len(p.Labelled); n > 0 {
		return leak.RefuseLabelled(o.Drift.op(), p.Sandbox, n, func(i int) (string, string) { return p.Labelled[i].Path, p.Labelled[i].Why })
	}
	if len(p.Conflicts) == 0 {
		return p.ApprovalError(o)
	}
	e := conflictsError(o.Drift.op(), p.Sandbox, p.Conflicts)
	switch {
	case p.Conflicts[0].InSandbox:
	case o.Drift == RefuseDrift:
		e.Kind, e.Hints = errs.ErrDrifted, []string{"snapfs plan " + p.Sandbox}
	case o.Target != "": // a refresh brings the workspace's changes, not those of the target
		e.Hints = []string{"snapfs promote " + p.Sandbox + " --target " + errs.Quoted(o.Target) + " --mine PATH --theirs PATH"}
	}
	return e
}

// A Refusal lists the answers to conflicts or the approvals that a refused promotion needs: the Details of its error.
type Refusal struct {
	Conflicts     []Conflict     `json:"conflicts,omitempty"`
	NeedsApproval []ApprovalPath `json:"held,omitempty"`
	Allow         []string       `json:"allow,omitempty"` // the values of --allow that approve all
}

// conflictsError returns an ErrConflict that lists up to 20 conflicts and hints at commands to resolve them.
func conflictsError(op, name string, conflicts []Conflict) *errs.Error {
	var why []error
	inside := false
	var mends []string
	plain := false
	for _, c := range conflicts[:min(len(conflicts), 20)] {
		text := pathlist.Printable(c.Path) + ": " + c.Why
		if c.InSandbox {
			inside, text = true, text+" (left in the sandbox by a refresh; resolve it there)"
		}
		why = append(why, errors.New(text))
		if mends == nil {
			mends = c.mends
		}
		plain = plain || c.mends == nil
	}
	if more := len(conflicts) - len(why); more > 0 {
		why = append(why, fmt.Errorf("and %d more", more))
	}
	hints := []string{"snapfs refresh " + name, "snapfs promote " + name + " --mine PATH --theirs PATH"}
	if inside {
		hints = []string{"snapfs refresh " + name + " --mine PATH --theirs PATH   # or edit it: snapfs shell " + name}
	}
	if mends != nil && !plain {
		hints = nil
	}
	hints = append(mends[:len(mends):len(mends)], hints...)
	return &errs.Error{Op: op, Path: name, Kind: errs.ErrConflict, Err: errors.Join(why...), Hints: hints, Details: Refusal{Conflicts: conflicts}}
}

// needApproval adds to the plan those changes in one directory, part, that need the user's approval.
func (p *Plan) needApproval(part *promotionPart, needed *approval.Needed) {
	for _, path := range needed.Paths {
		p.NeedsApproval = append(p.NeedsApproval, ApprovalPath{filepath.Join(part.path, path), needed.Why[path]})
	}
	p.Allow = append(p.Allow, under(part.Part.Root, needed.Allow)...)
	p.also = append(p.also, needed.Also.Args()...)
}

// checkLabels adds to the plan those changes in one directory, part, that have content of the sandbox's labelled files,
// unless allowed approves private content. dir is the directory of the sandbox, with its fingerprints.
func (c *Promotion) checkLabels(dir string, part *promotionPart, allowed bool) error {
	labels, err := leak.ReadLabels(dir, &c.Rec.Policy)
	if err != nil {
		return err
	}
	r := leak.Result{Labels: labels, Data: c.Rec.Policy.Data, Before: []*os.File{part.Part.Old, part.real}, At: part.Source().At, Root: part.path}
	found, err := r.Check(part.Changes)
	needed := &approval.Needed{Also: approval.Allow{Private: true}}
	for _, l := range found {
		if l.Secret {
			c.Plan.Labelled = append(c.Plan.Labelled, ApprovalPath{filepath.Join(part.path, l.Path), l.Why})
		} else if !allowed {
			needed.Add(l.Path, l.Why)
		}
	}
	if len(needed.Paths) > 0 {
		c.Plan.needApproval(part, needed)
	}
	return err
}

// ApprovalError returns an ErrDenied that lists the changes that need approval, by reason, with the command that
// approves all; nil if there are none. o are the plan's options.
func (p *Plan) ApprovalError(o PlanOptions) error {
	if len(p.NeedsApproval) == 0 {
		return nil
	}
	needed := new(approval.Needed)
	for _, a := range p.NeedsApproval {
		path := a.Path
		if rel, err := filepath.Rel(p.Target, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
		needed.Add(path, a.Why)
	}
	return &errs.Error{
		Op: o.Drift.op() + " to", Path: p.Target, Kind: errs.ErrDenied, Err: errors.New(needed.String()), Hints: []string{p.Approving(o)},
		Details: Refusal{NeedsApproval: p.NeedsApproval, Allow: p.Allow},
	}
}

// bind makes the command of Approving promote just the plan, made with o and a, so that it approves nothing that the
// sandbox adds later: it computes the fingerprint that the plan has once all is approved, and saves it. Approval lets
// commits in, so their plan is then another one. A merge tool's answers and picked hunks cannot be repeated.
func (rc *Reconciler) bind(ctx context.Context, c *Promotion, o PlanOptions, a Answers) error {
	if len(c.Plan.NeedsApproval) == 0 || len(c.Plan.Conflicts) > 0 || o.Files != "" || a.tool != "" {
		return nil
	}
	approved := c
	if len(c.Plan.Git) > 0 {
		o.Allow = approval.Allow{SetID: true, Devices: true, Capabilities: true, Private: true, Paths: []string{"/"}}
		again, done, err := rc.begin(ctx, c.Rec, o, a)
		defer done()
		if err != nil {
			return err
		}
		approved = again
	}
	if approved.Plan.Fingerprint == "" {
		if err := approved.AddSteps(ctx); err != nil {
			return err
		}
	}
	c.Plan.bound = approved.Plan.Fingerprint[:12]
	return rc.SavePlan(approved.Plan)
}

// Approving returns the command that carries out the plan, made with o, and approves all it needs; "" if none.
func (p *Plan) Approving(o PlanOptions) string {
	if len(p.NeedsApproval) == 0 {
		return ""
	}
	args := []string{"snapfs", "promote", p.Sandbox}
	for _, only := range o.Only {
		args = append(args, "--only", only)
	}
	if o.Drift == RefuseDrift {
		args = append([]string{"snapfs", "apply", p.Sandbox}, o.Only...)
	} else if o.Target != "" {
		args = append(args, "--target", o.Target)
	}
	for flag, set := range map[string]bool{"--merge": o.Git.Merge, "--rebase": o.Git.Rebase, "--squash": o.Git.Squash} {
		if set {
			args = append(args, flag)
		}
	}
	if o.Git.Message != "" {
		args = append(args, "-m", o.Git.Message)
	}
	args = append(args, p.also...)
	o.Allow.Paths = slices.Concat(o.Allow.Paths, p.Allow)
	for _, arg := range o.Allow.Args() {
		if !slices.Contains(p.also, arg) {
			args = append(args, arg)
		}
	}
	if p.bound != "" {
		args = append(args, "--plan", p.bound)
	}
	return strings.Join(each(args, errs.Quoted), " ")
}
