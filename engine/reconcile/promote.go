package reconcile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/engine/merge/mergetool"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/errs"
)

// PromoteOptions select the changes to promote and say how conflicts are resolved.
type PromoteOptions struct {
	PlanOptions
	// Plan is the fingerprint of the reviewed plan, or at least its first 12 characters. "" accepts any plan.
	Plan string
	// Mine and Theirs are patterns of the conflicts to answer with the sandbox's or the real version.
	Mine, Theirs []string
	// Tool is a shell command that merges the remaining conflicts of files, one at a time. It reads $BASE,
	// $MINE and $REAL and writes $OUT. If it contains no $, the four names are its arguments in this order.
	Tool     string
	Terminal *mergetool.Terminal // connects the tool to a person; nil for none
	DryRun   bool                // checks everything and changes nothing
	// Temporary leaves the promotion out of the history. The caller must undo or forget it.
	Temporary bool
}

// Answers returns those of the options that say how to resolve conflicts, for [Reconciler.Begin].
func (o PromoteOptions) Answers() Answers {
	return Answers{mine: o.Mine, theirs: o.Theirs, tool: o.Tool, terminal: o.Terminal}
}

// Promoted is the result of [Reconciler.Promote]: the number of changed paths, and those left out.
type Promoted struct {
	ID      string `json:"id,omitempty"` // for [Reconciler.Undo]; "" if there was nothing to do
	Sandbox string `json:"sandbox"`
	Target  string `json:"target"`
	// Changes is the number of changed paths; with DryRun, of those that would change.
	Changes int      `json:"changes"`
	Already []string `json:"already,omitempty"` // paths that already had the planned state
	// Skipped and Elsewhere are those of the plan: changes that were not promoted.
	Skipped   []string           `json:"skipped,omitempty"`
	Elsewhere int                `json:"elsewhere"`
	Left      []string           `json:"left,omitempty"` // changed paths that [result] of the profile leaves in the sandbox
	Git       []gitresult.Report `json:"git,omitempty"`  // the moved refs, and what became of them
}

// Promote merges a sandbox's changes with those of the real tree and writes the result there, all or none. It makes
// the plan again; if that differs from o.Plan, or the real tree changes before the last step, the error is
// ErrDrifted. Unanswered conflicts, also those of a refresh, are ErrConflict, or ErrDrifted with RefuseDrift. A
// change that needs approval is ErrDenied. After any error the real tree is unchanged.
//
// The replaced files move to a directory beside the target, on the same filesystem, and [Reconciler.Undo] restores
// them. The sandbox is frozen meanwhile. If snapfs is killed, the next command completes or reverts the promotion.
func (rc *Reconciler) Promote(ctx context.Context, name string, o PromoteOptions) (Promoted, error) {
	return compare.Served(ctx, func(ctx context.Context) (Promoted, error) {
		if err := checkFingerprint(name, o.Plan); err != nil {
			return Promoted{}, err
		}
		if err := rc.RefuseUnfinished(o.Drift.op(), name, o.Target); err != nil {
			return Promoted{}, err
		}
		o.execute = !o.DryRun
		point := catalog.AtPromotion
		if o.DryRun {
			point = ""
		}
		c, done, err := rc.beginAt(ctx, point, name, o.PlanOptions, o.Answers())
		if err != nil {
			return Promoted{}, err
		}
		defer done()
		return rc.execute(ctx, c, o)
	})
}

// PromoteRecord does the same as Promote for a sandbox whose lock the caller holds, in which nothing runs, and which
// no longer reads renamed files from the real tree.
func (rc *Reconciler) PromoteRecord(ctx context.Context, rec *catalog.Record, o PromoteOptions) (Promoted, error) {
	return compare.Served(ctx, func(ctx context.Context) (Promoted, error) {
		if err := rc.RefuseUnfinished(o.Drift.op(), rec.Name, o.Target); err != nil {
			return Promoted{}, err
		}
		c, done, err := rc.begin(ctx, rec, o.PlanOptions, o.Answers())
		defer done()
		if err != nil {
			return Promoted{}, err
		}
		return rc.execute(ctx, c, o)
	})
}

// execute carries out the plan of a promotion or, with o.DryRun, only checks it.
func (rc *Reconciler) execute(ctx context.Context, c *Promotion, o PromoteOptions) (Promoted, error) {
	if err := sandbox.WorkspaceMissing(o.Drift.op(), c.Rec); err != nil && len(o.Only) == 0 {
		return Promoted{}, err
	}
	r := Promoted{
		Sandbox: c.Rec.Name, Target: c.Plan.Target, Skipped: c.Plan.Skipped, Elsewhere: c.Plan.Elsewhere,
		Already: c.Plan.already, Git: c.Plan.Git, Left: c.Plan.Left,
	}
	if err := rc.bind(ctx, c, o.PlanOptions, o.Answers()); err != nil {
		return r, err
	}
	if err := c.Plan.Refused(o.PlanOptions); err != nil {
		rc.announceRefusal(c, err)
		return r, err
	}
	for _, p := range c.Parts {
		if err := leak.Check(c.Rec, rc.cat.Path(c.Rec.Name), p.Source().At, p.path, p.Changes); err != nil {
			return r, leak.Announce(c.Rec, rc.events, err)
		}
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

// target returns the real directory that receives the changes of one directory, p, for package promote.
func (p *promotionPart) target(e *Reconciler) promote.Target {
	return promote.Target{Root: p.real, Path: p.path, StateDir: e.promotionsDir()}
}

// Source tells package promote where the content of the changes is: in the sandbox or in merged files.
func (p *promotionPart) Source() promote.Source {
	return promote.Source{Tree: p.Part.New, Built: p.built, In: p.res.Built, From: p.res.From}
}

// wouldPromote returns ErrDrifted if the real tree has changed since the plan, and else counts the changes in r.
func (rc *Reconciler) wouldPromote(ctx context.Context, c *Promotion, _ PromoteOptions, r *Promoted) error {
	for _, p := range c.Parts {
		known, err := p.expected(ctx, p.Changes)
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
		r.Changes += diff.Count(p.Changes) - len(p.gitFiles)
	}
	return nil
}

// promoteAll promotes the changes, directory by directory. If one is refused it undoes those before it.
func (rc *Reconciler) promoteAll(ctx context.Context, c *Promotion, o PromoteOptions, r *Promoted) error {
	if err := rc.writeObjects(ctx, c); err != nil {
		return err
	}
	group := catalog.NewID()
	if o.Drift == RefuseDrift {
		group = applyGroup + group
	}
	promoting := events.Data{Promotion: group, Plan: o.Plan, Target: c.Plan.Target, Changes: c.Plan.Count()}
	for _, a := range c.Plan.NeedsApproval {
		promoting.AddPath(a.Path)
	}
	if rc.manifest != nil {
		if err := rc.manifest(ctx, c.Rec); err != nil {
			return err
		}
	}
	if err := rc.witness(events.ChangesPromoting, c.Rec, promoting); err != nil {
		return err
	}
	var done []string
	note := &promotedNote{Group: group, Sandbox: c.Rec.Name, Workspace: c.Rec.Workspace, ID: c.Rec.ID, Refreshed: c.Rec.Refreshed}
	note.noteGit(c.Parts)
	err := rc.baseline.WithLock(c.Rec, func() error {
		for _, p := range c.Parts {
			id, stamps, err := rc.promotePart(ctx, c, p, o, group, r)
			if err == nil && !p.theirs.empty() {
				err = rc.baseline.Forget(c.Rec.Name, p.path, p.theirs.cover)
			}
			err = errors.Join(err, rc.baseline.Remember(c.Rec.Name, p.path, stamps, p.ownStamps(stamps)))
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
		rc.keyPoints.NotePromotion(c.held, group)
		rc.announce(events.ChangesPromoted, c.Rec, events.Data{Promotion: group, Plan: o.Plan, Target: c.Plan.Target, Changes: r.Changes})
	}
	// The promotion is complete. If the baseline cannot be updated, the cost is at most a conflict later.
	if err := rc.recordPromoted(context.WithoutCancel(ctx), c, note); err != nil {
		rc.notice("promoted, but the sandbox's baseline was not updated: " + err.Error())
	}
	return nil
}

// promotePart promotes the changes in one directory, p, counts them in r, and returns the promotion's id and the
// stamp (inode, change time) of each file. One command's directories have one group, for an undo of all.
func (rc *Reconciler) promotePart(ctx context.Context, c *Promotion, p *promotionPart, o PromoteOptions, group string, r *Promoted) (string, map[string]promote.Stamp, error) {
	if err := rc.RefuseUnfinished("promoting", c.Rec.Name, p.path); err != nil {
		return "", nil, err
	}
	known, err := p.expected(ctx, p.Changes)
	if err != nil {
		return "", nil, err
	}
	done, err := rc.applyChanges(ctx, p.target(rc), p.Source(), p.Changes, promote.Options{
		Base: promote.Base{Known: known}, Allow: p.allow, Sandbox: c.Rec.Name, KeepUndo: true, Temporary: o.Temporary, Group: group, Internal: p.gitFiles,
	})
	if err != nil {
		return "", done.Stamps, p.Part.Lost(err)
	}
	r.Changes += done.Applied
	r.Already = append(r.Already, under(p.path, done.Already)...)
	r.Skipped = append(r.Skipped, under(p.path, done.Skipped)...)
	return done.ID, done.Stamps, nil
}

// ownStamps returns stamps (inode, change time) of the promoted files that a later apply may take for unchanged:
// where the real tree had no change. Others must look drifted, or apply would overwrite the user's change.
func (p *promotionPart) ownStamps(stamps map[string]promote.Stamp) map[string]promote.Stamp {
	if p.path != p.Part.Root {
		return stamps // the merge compares there
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

// recordPromoted stores the sandbox's state as the base of its later changes, at the paths that were promoted or
// answered with the real version. The previous entries are saved in note for an undo.
func (rc *Reconciler) recordPromoted(ctx context.Context, c *Promotion, note *promotedNote) error {
	if c.Rec.Ephemeral {
		return rc.savePromoted(note)
	}
	note.Before = map[string]*baseline.JSONEntry{}
	return rc.baseline.Update(ctx, c.Rec, func(k *baseline.Baseline) error {
		for _, p := range c.Parts {
			if err := p.recordPromoted(ctx, k, note); err != nil {
				return err
			}
		}
		return rc.savePromoted(note)
	})
}

// recordPromoted makes what was promoted, or is equal on both sides, the base of later changes. note gets the old one.
func (p *promotionPart) recordPromoted(ctx context.Context, k *baseline.Baseline, note *promotedNote) error {
	full := len(p.Changes)-len(p.gitFiles) == len(withoutTimeOnly(p.res.Changes)) && len(p.res.Conflicts) == 0
	recorded := p.in.Mine
	if !full {
		recorded = p.settled()
	}
	mine := baseline.RootedReader{Root: p.Part.New}
	defer mine.Close()
	for _, c := range recorded {
		key := filepath.Join(p.Part.Root, c.Path)
		if p.path != p.Part.Root {
			key = baseline.KeyIn(p.path, c.Path)
		}
		note.before(k, key)
		if err := k.Promote(key, &c, &mine); err != nil {
			return err
		}
	}
	if p.Part.Frozen || p.path != p.Part.Root {
		return nil // the changes include what is equal on both sides
	}
	return k.Agree(ctx, p.path, p.real, &mine, p.Part.Opt, note.before)
}

// settled returns the changes that were promoted at their own path, or for which an answer took the real version.
func (p *promotionPart) settled() (changes []diff.Change) {
	there := map[string]bool{}
	for _, c := range p.Changes {
		_, other := p.res.From[c.Path]
		there[c.Path] = !other
	}
	for _, c := range p.in.Mine {
		if there[c.Path] || p.theirs.cover(c.Path) {
			changes = append(changes, c)
		}
	}
	return changes
}

// under returns the absolute paths for paths, which are relative to the directory root.
func under(root string, paths []string) []string {
	return each(paths, func(path string) string { return filepath.Join(root, path) })
}

// applyGroup is the prefix of the id of a command's promotions if the command was snapfs apply, which refuses drift.
const applyGroup = "apply-"

// IsApply reports whether group, the id of a command's promotions, is that of snapfs apply, which refuses drift.
func IsApply(group string) bool { return strings.HasPrefix(group, applyGroup) }

// promotionsDir returns the directory for the journals and undo data of promotions.
func (rc *Reconciler) promotionsDir() string { return filepath.Join(rc.cat.Dir(), "promotions") }
