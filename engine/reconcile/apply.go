package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/errs"
)

// ApplyOptions say what is carried back. The zero value is the workspace,
// without what approval.Allow lists.
type ApplyOptions struct {
	// Paths limits it to these absolute paths and what lies beneath them; what
	// lies outside the workspace is only carried back when it is named here.
	Paths []string
	// Allow names what is refused otherwise.
	Allow approval.Allow
	// DryRun only checks.
	DryRun bool
	// Stays is of a [Session] that may be kept afterwards: what it has renamed on a live base is copied into it.
	Persists bool
}

// Applied is what was carried back.
type Applied struct {
	// ID is what [Engine.Undo] takes; "" when there was nothing to do.
	ID string `json:"id,omitempty"`
	// Changes is how many paths were changed; with DryRun, would be.
	Changes int `json:"changes"`
	// Already are paths that were there as they should be, and Skipped those
	// that cannot be carried (sockets), all absolute.
	Already []string `json:"already,omitempty"`
	Skipped []string `json:"skipped,omitempty"`
	// Elsewhere is the number of changes outside the workspace that were not
	// named.
	Elsewhere int `json:"elsewhere"`
}

// Apply brings a sandbox's changes to the real tree, wholly or not at all.
// Where a real file has moved on since the base: ErrDrifted, naming the paths,
// and nothing was touched. What it displaces is kept as that of a promotion is, so
// that [Engine.Undo] brings it back. Processes in the sandbox stand still meanwhile; while there are any, nothing
// is applied that the sandbox has renamed on a live base and would lose by it (ErrBusy).
// Cost, beside that of the changes: a copy of what was renamed there, kept in the sandbox (ErrNoSpace).
// Safe to kill: the next command completes it or takes it back.
func (rc *Reconciler) Apply(ctx context.Context, name string, o ApplyOptions) (Applied, error) {
	h, err := rc.supervise.HoldAny(ctx, name)
	if err != nil {
		return Applied{}, err
	}
	defer h.Release()
	var thaw func()
	if o.DryRun {
		_, thaw, err = rc.supervise.Freeze(ctx, h)
	} else {
		thaw, err = rc.freezeToPromote(ctx, h, o.Picks(h.Record))
	}
	if err != nil {
		return Applied{}, err
	}
	defer thaw()
	a, err := rc.ApplyRecord(ctx, h.Record, o)
	return a, hintPlan(err, name)
}

// hintPlan gives the error of what has moved on the command that shows what a
// merge would make of it.
func hintPlan(err error, name string) error {
	var e *errs.Error
	if errors.As(err, &e) && errors.Is(e.Kind, errs.ErrDrifted) && len(e.Hints) == 0 {
		e.Hints = []string{"snapfs plan " + name}
	}
	return err
}

func (rc *Reconciler) ApplyRecord(ctx context.Context, rec *catalog.Record, o ApplyOptions) (Applied, error) {
	var a Applied
	if err := rc.RefuseUnfinished("applying", rec.Name, ""); err != nil {
		return a, err
	}
	if err := sandbox.WorkspaceMissing("applying", rec); err != nil && len(o.Paths) == 0 {
		return a, err
	}
	changes, err := rc.compare.Changes(ctx, rec)
	if err != nil {
		return a, err
	}
	defer changes.Close()
	parts, elsewhere, err := selectParts(changes, o.Paths)
	a.Elsewhere = elsewhere
	if err == nil {
		err = rc.refuseUnresolved(ctx, rec, changes, "applying", func(abs string) bool { return pickedBy(parts, abs) })
	}
	if err != nil {
		return a, err
	}
	known, err := rc.baseline.Stamps(rec.Name)
	if err == nil {
		err = rc.refuseDeleted(rec, parts, known)
	}
	if err != nil {
		return a, err
	}
	if o.DryRun {
		err = rc.wouldApply(ctx, rec, parts, o, known, &a)
	} else {
		err = rc.applyAll(ctx, rec, parts, o, known, &a)
	}
	return a, err
}

// applyAll applies every part; where one is refused, those before it are taken back.
func (rc *Reconciler) applyAll(ctx context.Context, rec *catalog.Record, parts []compare.Part, o ApplyOptions, known baseline.StampsOf, a *Applied) error {
	note := &promotedNote{Group: applyGroup + catalog.NewID(), Sandbox: rec.Name, ID: rec.ID, Refreshed: rec.Refreshed}
	var done []string
	err := rc.baseline.WithLock(rec, func() error {
		for _, p := range parts {
			id, err := rc.applyPart(ctx, rec, p, o, known, note.Group, a)
			if id != "" {
				done = append(done, id)
			}
			if err != nil {
				return errors.Join(err, rc.undoParts(context.WithoutCancel(ctx), rec.Name, done))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(done) > 0 {
		a.ID = note.Group
	}
	if err := rc.noteApplied(context.WithoutCancel(ctx), rec, parts, note, len(done) > 0); err != nil {
		rc.notice("applied, but it is not noted in the sandbox: " + err.Error())
	}
	return nil
}

// applyGroup begins the names of applies among those of promotions.
const applyGroup = "apply-"

// IsApply tells an apply from a promotion, by its group.
func IsApply(group string) bool { return strings.HasPrefix(group, applyGroup) }

// toApply opens what a part is applied to, and what it is the difference to.
func (rc *Reconciler) toApply(rec *catalog.Record, p compare.Part, known baseline.StampsOf) (promote.Target, promote.Base, error) {
	if err := rc.RefuseUnfinished("applying", rec.Name, p.Root); err != nil {
		return promote.Target{}, promote.Base{}, err
	}
	root, err := os.OpenFile(p.Root, syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return promote.Target{}, promote.Base{}, &errs.Error{Op: "applying to", Path: p.Root, Kind: errs.KindOf(err), Err: err}
	}
	base := promote.Base{Taken: p.Taken, Frozen: p.Frozen, Known: known[p.Root]}
	if p.Frozen {
		base.Root = p.Old
	}
	return promote.Target{Root: root, Path: p.Root, StateDir: rc.promotionsDir()}, base, nil
}

// applyPart applies one part. The answer names the promotion, "" where nothing was
// done: with an error it is to be taken back.
func (rc *Reconciler) applyPart(ctx context.Context, rec *catalog.Record, p compare.Part, o ApplyOptions, known baseline.StampsOf, group string, a *Applied) (string, error) {
	target, base, err := rc.toApply(rec, p, known)
	if err != nil {
		return "", err
	}
	defer target.Root.Close()
	r, err := promote.Apply(ctx, target, promote.Source{Tree: p.New}, p.Changes, promote.Options{Base: base, Allow: o.Allow, Sandbox: rec.Name, KeepUndo: true, Group: group})
	err = errors.Join(err, rc.baseline.Remember(rec.Name, p.Root, r.Stamps))
	if err != nil {
		return r.ID, hintAllow(err, rec.Name, p.Root)
	}
	a.Changes += r.Applied
	a.Already = append(a.Already, under(p.Root, r.Already)...)
	a.Skipped = append(a.Skipped, under(p.Root, r.Skipped)...)
	return r.ID, nil
}

// wouldApply says what stands in the way of the parts.
func (rc *Reconciler) wouldApply(ctx context.Context, rec *catalog.Record, parts []compare.Part, o ApplyOptions, known baseline.StampsOf, a *Applied) error {
	for _, p := range parts {
		target, base, err := rc.toApply(rec, p, known)
		if err != nil {
			return err
		}
		a.Changes += diff.Count(p.Changes)
		err = wouldRefuse(ctx, target, p, base, o.Allow)
		target.Root.Close()
		if err != nil {
			return hintAllow(err, rec.Name, p.Root)
		}
	}
	return nil
}

// wouldRefuse is the error of what stands in the way of a part, or nil.
func wouldRefuse(ctx context.Context, t promote.Target, p compare.Part, base promote.Base, allow approval.Allow) error {
	steps, moved, err := promote.Plan(ctx, t, promote.Source{Tree: p.New}, p.Changes, base)
	if err != nil {
		return err
	}
	if len(moved) == 0 {
		changes := make([]diff.Change, len(steps))
		for i, s := range steps {
			changes[i] = s.Change
		}
		if held := allow.Check(p.Root, changes); held != nil {
			return &errs.Error{Op: "applying to", Path: p.Root, Kind: errs.ErrDenied, Err: held}
		}
		return nil
	}
	var why []error
	for _, d := range moved[:min(len(moved), 20)] {
		why = append(why, fmt.Errorf("%s: %s", pathlist.Printable(d.Path), d.Why))
	}
	if more := len(moved) - len(why); more > 0 {
		why = append(why, fmt.Errorf("and %d more", more))
	}
	return &errs.Error{Op: "applying to", Path: p.Root, Kind: errs.ErrDrifted, Err: errors.Join(why...)}
}

// hintAllow gives the error of what was held back the command that lifts it.
func hintAllow(err error, name, root string) error {
	var held *approval.Needed
	var e *errs.Error
	if !errors.As(err, &held) || !errors.As(err, &e) || len(e.Hints) > 0 {
		return err
	}
	const most = 3
	command := "snapfs apply " + name
	for _, path := range held.Allow[:min(len(held.Allow), most)] {
		abs := filepath.Join(root, path)
		if strings.ContainsFunc(abs, func(c rune) bool { return !strings.ContainsRune(plainInShell, c) }) {
			abs = "PATH"
		}
		command += " --allow " + abs
	}
	if len(held.Allow) > most {
		command += " --allow …"
	}
	e.Hints = []string{"snapfs diff " + name, command}
	return err
}

// plainInShell needs no quotes there.
const plainInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%=:,"

// selectParts picks what is to be applied: the workspace, or what lies at
// paths. elsewhere counts what was changed outside and not named.
func selectParts(c *compare.Changes, paths []string) (parts []compare.Part, elsewhere int, err error) {
	matched := make([]bool, len(paths))
	if len(paths) == 0 {
		elsewhere = c.Elsewhere()
	}
	for _, p := range c.Parts {
		if len(paths) == 0 {
			if p.Workspace {
				parts = append(parts, p)
			}
			continue
		}
		inside, all := beneath(p, paths, matched)
		if !all && len(inside) == 0 {
			continue
		}
		if !all {
			if p.Changes, err = promote.Select(p.Changes, inside); err != nil {
				return nil, 0, err
			}
		}
		parts = append(parts, p)
	}
	for i, ok := range matched {
		if !ok {
			return nil, 0, &errs.Error{Op: "applying", Path: pathlist.Printable(paths[i]), Kind: errs.ErrNotFound, Err: errors.New("the sandbox has not changed it")}
		}
	}
	return parts, elsewhere, nil
}

// refuseDeleted refuses to bring back what the real tree had, on a live base when
// snapfs looked, or because it was carried there, and has not any more: the change
// itself looks like an addition. Where snapfs has not looked, because what it saw
// could not be kept, it refuses what the user may have deleted.
func (rc *Reconciler) refuseDeleted(rec *catalog.Record, parts []compare.Part, known baseline.StampsOf) error {
	k, err := rc.baseline.Read(rec)
	if err != nil {
		return err
	}
	var why []error
	for i := range parts {
		if why, err = refusedOf(&parts[i], rec, k, known, why); err != nil {
			return err
		}
	}
	if len(why) == 0 {
		return nil
	}
	return &errs.Error{Op: "applying to", Path: rec.Workspace, Kind: errs.ErrDrifted, Err: errors.Join(why...), Hints: []string{"snapfs plan " + rec.Name}}
}

// refusedOf adds to why what is refused of a part, as long as that is few.
func refusedOf(p *compare.Part, rec *catalog.Record, k *baseline.Baseline, known baseline.StampsOf, why []error) ([]error, error) {
	root, err := baseline.OpenRoot(p.Root)
	if err != nil {
		return why, err
	}
	defer root.Close()
	base := baseline.LiveBase{Real: baseline.RootedReader{Root: root}, Taken: p.Taken, OpenFork: func() (*os.File, error) { return p.New, nil }, Known: known.In(p.Root)}
	defer base.Real.Close()
	for _, c := range p.Changes {
		if c.Kind != diff.Added || len(why) == 20 {
			continue
		}
		abs := filepath.Join(p.Root, c.Path)
		n, looked := k.Nodes[abs]
		switch {
		case n.Node != nil && (!p.Frozen || n.Promoted):
			if _, err := os.Lstat(abs); errors.Is(err, os.ErrNotExist) {
				why = append(why, fmt.Errorf("%s: it has been deleted since", pathlist.Printable(c.Path)))
			}
		case p.Frozen || rec.Ephemeral || looked && n.Unknown == "" || k.Absent(abs):
		default:
			now, unknown, err := base.At(c.Path)
			if err != nil {
				return why, err
			}
			if unknown = cmp.Or(n.Unknown, unknown); now == nil && unknown != "" {
				why = append(why, fmt.Errorf("%s: %s", pathlist.Printable(c.Path), unknown))
			}
		}
	}
	return why, nil
}

// noteApplied makes what was applied the base of what the sandbox changes next. Where
// it is undoable, the note says what was the base before.
func (rc *Reconciler) noteApplied(ctx context.Context, rec *catalog.Record, parts []compare.Part, note *promotedNote, undoable bool) error {
	if rec.Ephemeral {
		return nil
	}
	note.Before = map[string]*baseline.JSONEntry{}
	return rc.baseline.Update(ctx, rec, func(k *baseline.Baseline) error {
		for _, p := range parts {
			mine := baseline.RootedReader{Root: p.New}
			defer mine.Close()
			for i := range p.Changes {
				abs := filepath.Join(p.Root, p.Changes[i].Path)
				note.before(k, abs)
				if err := k.Promote(abs, &p.Changes[i], &mine); err != nil {
					return err
				}
			}
		}
		if len(note.Before) == 0 || !undoable {
			return nil
		}
		return rc.savePromoted(note)
	})
}

// pickedBy reports whether one of the parts has a change at an absolute path, or
// beneath it.
func pickedBy(parts []compare.Part, abs string) bool {
	for _, p := range parts {
		for _, c := range p.Changes {
			if hostfs.Within(filepath.Join(p.Root, c.Path), abs) {
				return true
			}
		}
	}
	return false
}

// beneath finds the paths at which a part has changes, relative to its root;
// all means that the whole part lies beneath one of them.
func beneath(p compare.Part, paths []string, matched []bool) (inside []string, all bool) {
	for i, path := range paths {
		if hostfs.Within(p.Root, path) {
			matched[i], all = true, true
			continue
		}
		rel, ok := strings.CutPrefix(path, strings.TrimSuffix(p.Root, "/")+"/")
		if ok && changedAt(p.Changes, rel) {
			matched[i], inside = true, append(inside, rel)
		}
	}
	return inside, all
}

func changedAt(changes []diff.Change, path string) bool {
	for _, c := range changes {
		if hostfs.Within("/"+c.Path, "/"+path) {
			return true
		}
	}
	return false
}

func under(root string, paths []string) []string {
	abs := make([]string, len(paths))
	for i, p := range paths {
		abs[i] = filepath.Join(root, p)
	}
	return abs
}
