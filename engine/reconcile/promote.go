package reconcile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/errs"
)

// PromoteOptions say what is carried, and how conflicts are answered.
type PromoteOptions struct {
	PlanOptions
	// Plan is the fingerprint of the plan that was reviewed, or at least its
	// first twelve characters. "" takes what the plan is now.
	Plan string
	// Mine and Theirs are patterns, as in Only, of conflicts that are answered
	// by what the sandbox, or the real tree, has.
	Mine, Theirs []string
	// Tool is a command of the shell that merges other conflicts of files, one
	// at a time: $BASE, $MINE and $REAL are what it reads, $OUT is what it makes.
	// Where it names none of them, they are its arguments, in this order.
	Tool string
	// Terminal is what the tool talks to a person through, or nil.
	Terminal *Terminal
	// DryRun only says whether it could be done.
	DryRun bool
	// Passing: it is no part of the history, and kept until it is undone or
	// forgotten, by a caller that has more to do before it is certain.
	Temporary bool
}

func (o PromoteOptions) Answers() answers {
	return answers{mine: o.Mine, theirs: o.Theirs, tool: o.Tool, terminal: o.Terminal}
}

// Promoted is what a promotion did; with DryRun, would do.
type Promoted struct {
	// ID is what [Engine.Undo] takes; "" when there was nothing to do.
	ID      string `json:"id,omitempty"`
	Sandbox string `json:"sandbox"`
	Target  string `json:"target"`
	// Changes is how many paths were changed.
	Changes int `json:"changes"`
	// Already are paths that were there as they should be.
	Already []string `json:"already,omitempty"`
	// Held, Allow, Skipped and Elsewhere are those of the plan: what was not
	// carried.
	NeedsApproval []ApprovalPath `json:"held,omitempty"`
	Allow         []string       `json:"allow,omitempty"`
	Skipped       []string       `json:"skipped,omitempty"`
	Elsewhere     int            `json:"elsewhere"`
}

// Promote carries a sandbox's changes to the real tree, merged with what has
// happened there since: wholly, or not at all. The plan is made again, and is the
// one that was reviewed, or it refuses (ErrDrifted, which says what differs).
// Conflicts that are not answered are ErrConflict, and so are those that a refresh
// has left in the sandbox. Where the real tree changes between the plan and its
// last step: ErrDrifted. After any error the real tree is as it was.
//
// What it displaces is kept beside the target, on its own filesystem: that is the
// safety copy, whatever the filesystem, and [Engine.Undo] brings it back. Processes
// in the sandbox stand still meanwhile. Safe to kill: the next command completes
// it or takes it back.
func (rc *Reconciler) Promote(ctx context.Context, name string, o PromoteOptions) (Promoted, error) {
	if err := checkFingerprint(name, o.Plan); err != nil {
		return Promoted{}, err
	}
	if err := rc.RefuseUnfinished("promoting", name, o.Target); err != nil {
		return Promoted{}, err
	}
	o.execute = !o.DryRun
	c, done, err := rc.Begin(ctx, name, o.PlanOptions, o.Answers())
	if err != nil {
		return Promoted{}, err
	}
	defer done()
	if err := sandbox.WorkspaceMissing("promoting", c.Rec); err != nil && len(o.Only) == 0 {
		return Promoted{}, err
	}
	r := Promoted{
		Sandbox: name, Target: c.Plan.Target, NeedsApproval: c.Plan.NeedsApproval, Allow: c.Plan.Allow,
		Skipped: c.Plan.Skipped, Elsewhere: c.Plan.Elsewhere,
	}
	if len(c.Plan.Conflicts) > 0 {
		return r, ConflictsError("promoting", name, c.Plan.Conflicts)
	}
	if o.Plan != "" {
		if err := c.AddSteps(ctx); err != nil {
			return r, err
		}
		if err := rc.CheckPlan(c.Plan, o.Plan); err != nil {
			return r, err
		}
	}
	if o.DryRun {
		return r, rc.wouldPromote(ctx, c, o, &r)
	}
	return r, rc.promoteAll(ctx, c, o, &r)
}

func ConflictsError(op, name string, conflicts []Conflict) error {
	var why []error
	inside := false
	for _, c := range conflicts[:min(len(conflicts), 20)] {
		text := pathlist.Printable(c.Path) + ": " + c.Why
		if c.InSandbox {
			inside, text = true, text+" (in the sandbox, since its refresh: it is answered there)"
		}
		why = append(why, errors.New(text))
	}
	if more := len(conflicts) - len(why); more > 0 {
		why = append(why, fmt.Errorf("and %d more", more))
	}
	hints := []string{"snapfs refresh " + name, "snapfs promote " + name + " --mine PATH --theirs PATH"}
	if inside {
		hints = []string{"snapfs refresh " + name + " --mine PATH --theirs PATH   # or edit it: snapfs shell " + name}
	}
	return &errs.Error{Op: op, Path: name, Kind: errs.ErrConflict, Err: errors.Join(why...), Hints: hints}
}

func (p *promotionPart) target(e *Reconciler) promote.Target {
	return promote.Target{Root: p.real, Path: p.path, StateDir: e.promotionsDir()}
}

func (p *promotionPart) Source() promote.Source {
	return promote.Source{Tree: p.Part.New, Built: p.in.Scratch, In: p.res.Built, From: p.res.From}
}

func (rc *Reconciler) wouldPromote(ctx context.Context, c *Promotion, _ PromoteOptions, r *Promoted) error {
	for _, p := range c.Parts {
		known, err := p.expected(p.Changes)
		if err != nil {
			return err
		}
		moved, err := promote.Check(ctx, p.target(rc), p.Source(), p.Changes, promote.Base{Known: known})
		if err != nil {
			return err
		}
		if len(moved) > 0 {
			return &errs.Error{Op: "promoting to", Path: p.path, Kind: errs.ErrDrifted, Err: fmt.Errorf("%s: %s", pathlist.Printable(moved[0].Path), moved[0].Why)}
		}
		r.Changes += diff.Count(p.Changes)
	}
	return nil
}

// promoteAll carries out every part; where one is refused, those before it are
// taken back.
func (rc *Reconciler) promoteAll(ctx context.Context, c *Promotion, o PromoteOptions, r *Promoted) error {
	group := catalog.NewID()
	var done []string
	carried := &promotedNote{Group: group, Sandbox: c.Rec.Name, ID: c.Rec.ID, Refreshed: c.Rec.Refreshed}
	err := rc.baseline.WithLock(c.Rec, func() error {
		for _, p := range c.Parts {
			id, stamps, err := rc.promotePart(ctx, c, p, o, group, r)
			err = errors.Join(err, rc.baseline.Remember(c.Rec.Name, p.Part.Root, p.ownStamps(stamps)))
			if id != "" {
				done = append(done, id)
			}
			if err != nil {
				return errors.Join(err, rc.undoParts(context.WithoutCancel(ctx), c.Rec.Name, done))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(done) > 0 {
		r.ID = group
	}
	// From here on it is done. What is not noted any more costs a conflict at most.
	if err := rc.recordPromoted(context.WithoutCancel(ctx), c, carried); err != nil {
		rc.notice("promoted, but it is not noted in the sandbox: " + err.Error())
	}
	return nil
}

func (rc *Reconciler) promotePart(ctx context.Context, c *Promotion, p *promotionPart, o PromoteOptions, group string, r *Promoted) (string, map[string]promote.Stamp, error) {
	if err := rc.RefuseUnfinished("promoting", c.Rec.Name, p.path); err != nil {
		return "", nil, err
	}
	known, err := p.expected(p.Changes)
	if err != nil {
		return "", nil, err
	}
	done, err := promote.Apply(ctx, p.target(rc), p.Source(), p.Changes, promote.Options{
		Base: promote.Base{Known: known}, Allow: o.Allow, Sandbox: c.Rec.Name, KeepUndo: true, Temporary: o.Temporary, Group: group,
	})
	if err != nil {
		return "", done.Stamps, hintAllow(err, c.Rec.Name, p.path)
	}
	r.Changes += done.Applied
	r.Already = append(r.Already, under(p.path, done.Already)...)
	r.Skipped = append(r.Skipped, under(p.path, done.Skipped)...)
	return done.ID, done.Stamps, nil
}

// own leaves, of the stamps of a promotion, those of paths at which the real tree
// had nothing of its own: what both changed, or may have, must look drifted to who
// compares with the sandbox alone, above all where it was put back.
func (p *promotionPart) ownStamps(stamps map[string]promote.Stamp) map[string]promote.Stamp {
	if p.path != p.Part.Root || len(stamps) == 0 {
		return nil
	}
	both := map[string]bool{}
	for _, c := range p.in.Real {
		both[c.Path] = true
	}
	own := map[string]promote.Stamp{}
	for path, s := range stamps {
		_, other := p.res.From[path]
		_, unknown := p.in.Unknown[path]
		if !both[path] && !unknown && !p.res.Built[path] && !other {
			own[path] = s
		}
	}
	return own
}

// recordPromoted makes what the sandbox has the base of what it changes from here on,
// at the paths that were carried, or answered by what the real tree has.
func (rc *Reconciler) recordPromoted(ctx context.Context, c *Promotion, note *promotedNote) error {
	note.Before = map[string]*baseline.JSONEntry{}
	return rc.baseline.Update(ctx, c.Rec, func(k *baseline.Baseline) error {
		for _, p := range c.Parts {
			if p.path != p.Part.Root {
				continue // another target says nothing of the workspace
			}
			if err := p.recordPromoted(k, note); err != nil {
				return err
			}
		}
		if len(note.Before) == 0 {
			return nil
		}
		return rc.savePromoted(note)
	})
}

func (p *promotionPart) recordPromoted(k *baseline.Baseline, note *promotedNote) error {
	full := len(p.Changes) == len(withoutTimeOnly(p.res.Changes)) && len(p.res.Conflicts) == 0
	there := map[string]bool{}
	for _, c := range p.Changes {
		if _, other := p.res.From[c.Path]; !other {
			there[c.Path] = true
		}
	}
	mine := baseline.RootedReader{Root: p.Part.New}
	defer mine.Close()
	for _, c := range p.in.Mine {
		if !full && !there[c.Path] && !p.answeredTheirs(c.Path) {
			continue
		}
		abs := filepath.Join(p.Part.Root, c.Path)
		note.before(k, abs)
		if err := k.Promote(abs, &c, &mine); err != nil {
			return err
		}
	}
	return nil
}

// theirs: a conflict at a path, or above it, was answered by what the real tree
// has.
func (p *promotionPart) answeredTheirs(path string) bool {
	for at, choice := range p.answered {
		if choice == merge.Theirs && compare.LiesIn(path, at) {
			return true
		}
	}
	return false
}

func (rc *Reconciler) promotionsDir() string { return filepath.Join(rc.cat.Dir(), "promotions") }
