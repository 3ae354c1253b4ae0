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

// ApplyOptions select the changes to apply. The zero value is the workspace,
// without the paths that need approval.
type ApplyOptions struct {
	// Paths limits the changes to these absolute paths and everything below them.
	// A path outside the workspace is applied only if it is listed here.
	Paths []string
	// Allow approves paths that need approval.
	Allow approval.Allow
	// DryRun checks everything and changes nothing.
	DryRun bool
	// Persists is set if the sandbox of a Session may remain afterwards. Renamed files that it
	// still reads from a live base are then copied into it first.
	Persists bool
}

// Applied is the result of [Reconciler.Apply].
type Applied struct {
	// ID is the identifier for [Reconciler.Undo]; "" if there was nothing to do.
	ID string `json:"id,omitempty"`
	// Changes is the number of changed paths; with DryRun, of those that would
	// change.
	Changes int `json:"changes"`
	// Already are the paths that already had the sandbox's state. Skipped are
	// sockets, which only their server can create. All are absolute.
	Already []string `json:"already,omitempty"`
	Skipped []string `json:"skipped,omitempty"`
	// Elsewhere is the number of changes outside the workspace that Paths does
	// not include.
	Elsewhere int `json:"elsewhere"`
}

// Apply writes a sandbox's changes to the real tree, all or none. Unlike Promote
// it never merges: if a real file has changed since the base was taken, it
// returns errs.ErrDrifted with the paths and changes nothing. [Reconciler.Undo]
// reverts it. Processes in the sandbox are frozen meanwhile.
//
// Cost: that of the changes, and a copy into the sandbox of the files that it has
// renamed on a live base. If a process runs in the sandbox and such a copy is
// needed, the error is ErrBusy; without space for it, ErrNoSpace.
//
// If snapfs is killed, the next command completes or reverts the apply.
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

// hintPlan adds the command that shows the merge to an error of kind ErrDrifted.
func hintPlan(err error, name string) error {
	var e *errs.Error
	if errors.As(err, &e) && errors.Is(e.Kind, errs.ErrDrifted) && len(e.Hints) == 0 {
		e.Hints = []string{"snapfs plan " + name}
	}
	return err
}

// ApplyRecord does the same as Apply for a sandbox whose lock the caller holds
// and whose processes are frozen.
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

// applyAll applies every part. If one is refused it undoes the parts before it.
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
		rc.notice("applied, but the sandbox's baseline was not updated: " + err.Error())
	}
	return nil
}

// applyGroup is the prefix of an apply's group, which distinguishes it from a
// promotion.
const applyGroup = "apply-"

// IsApply reports whether a promotion's group was made by [Reconciler.Apply].
func IsApply(group string) bool { return strings.HasPrefix(group, applyGroup) }

// toApply opens the target of a part, and returns the base against which its
// drift is checked.
func (rc *Reconciler) toApply(rec *catalog.Record, p compare.Part, known baseline.StampsOf) (promote.Target, promote.Base, error) {
	if err := rc.RefuseUnfinished("applying", rec.Name, p.Root); err != nil {
		return promote.Target{}, promote.Base{}, err
	}
	root, err := os.OpenFile(p.Root, syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return promote.Target{}, promote.Base{}, errs.With("applying to", p.Root, err)
	}
	base := promote.Base{Taken: p.Taken, Frozen: p.Frozen, Known: known[p.Root]}
	if p.Frozen {
		base.Root = p.Old
	}
	return promote.Target{Root: root, Path: p.Root, StateDir: rc.promotionsDir()}, base, nil
}

// applyPart applies one part and returns the identifier of its promotion, "" if
// nothing was done. With an error, the caller must undo that promotion.
func (rc *Reconciler) applyPart(ctx context.Context, rec *catalog.Record, p compare.Part, o ApplyOptions, known baseline.StampsOf, group string, a *Applied) (string, error) {
	target, base, err := rc.toApply(rec, p, known)
	if err != nil {
		return "", err
	}
	defer target.Root.Close()
	r, err := rc.applyChanges(ctx, target, promote.Source{Tree: p.New}, p.Changes, promote.Options{Base: base, Allow: o.Allow, Sandbox: rec.Name, KeepUndo: true, Group: group})
	err = errors.Join(err, rc.baseline.Remember(rec.Name, p.Root, r.Stamps))
	if err != nil {
		return r.ID, err
	}
	a.Changes += r.Applied
	a.Already = append(a.Already, under(p.Root, r.Already)...)
	a.Skipped = append(a.Skipped, under(p.Root, r.Skipped)...)
	return r.ID, nil
}

// wouldApply checks the parts for drift and for paths that need approval, and
// changes nothing.
func (rc *Reconciler) wouldApply(ctx context.Context, rec *catalog.Record, parts []compare.Part, o ApplyOptions, known baseline.StampsOf, a *Applied) error {
	for _, p := range parts {
		target, base, err := rc.toApply(rec, p, known)
		if err != nil {
			return err
		}
		a.Changes += diff.Count(p.Changes)
		err = wouldRefuse(ctx, target, p, base, o.Allow, rec.Name)
		target.Root.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// wouldRefuse returns the error with which promote.Apply would refuse a part, or
// nil.
func wouldRefuse(ctx context.Context, t promote.Target, p compare.Part, base promote.Base, allow approval.Allow, sandbox string) error {
	steps, moved, err := promote.Plan(ctx, t, promote.Source{Tree: p.New}, p.Changes, base)
	if err != nil {
		return err
	}
	if len(moved) == 0 {
		if needed := allow.Check(p.Root, steps); needed != nil {
			return needed.Refusal("applying to", p.Root, sandbox)
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

// selectParts returns the parts of the changes to apply: the workspace, or the changes at
// paths. elsewhere is the number of changes outside the workspace if paths is empty. Error:
// errs.ErrNotFound for a path without changes.
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
		inside, all := pathsIn(p, paths, matched)
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
			return nil, 0, &errs.Error{Op: "applying", Path: pathlist.Printable(paths[i]), Kind: errs.ErrNotFound, Err: errors.New("the sandbox has not changed this path")}
		}
	}
	return parts, elsewhere, nil
}

// refuseDeleted returns ErrDrifted if a part would bring back a file that the user has deleted
// from the real tree. Such a change looks like an addition; only the baseline shows that the
// file existed. Where the original is unknown, refuseDeleted refuses a file that the user may
// have deleted.
func (rc *Reconciler) refuseDeleted(rec *catalog.Record, parts []compare.Part, known baseline.StampsOf) error {
	k, err := rc.baseline.Read(rec)
	if err != nil {
		return err
	}
	var why []error
	for i := range parts {
		if why, err = rc.refusedOf(&parts[i], rec, k, known, why); err != nil {
			return err
		}
	}
	if len(why) == 0 {
		return nil
	}
	return &errs.Error{Op: "applying to", Path: rec.Workspace, Kind: errs.ErrDrifted, Err: errors.Join(why...), Hints: []string{"snapfs plan " + rec.Name}}
}

// refusedOf appends to why the reasons to refuse a part, up to 20 in all.
func (rc *Reconciler) refusedOf(p *compare.Part, rec *catalog.Record, k *baseline.Baseline, known baseline.StampsOf, why []error) ([]error, error) {
	root, err := baseline.OpenRoot(p.Root)
	if err != nil {
		return why, err
	}
	defer root.Close()
	base := baseline.LiveBase{Real: baseline.RootedReader{Root: root}, Since: rc.baseline.Since(rec, &catalog.Tree{Path: p.Tree, Taken: p.Taken}), OpenFork: func() (*os.File, error) { return p.New, nil }, Known: known.In(p.Root)}
	defer base.Real.Close()
	for _, c := range p.Changes {
		if c.Kind != diff.Added || len(why) == 20 {
			continue
		}
		abs := filepath.Join(p.Root, c.Path)
		n, recorded := k.Nodes[abs]
		switch {
		case n.Node != nil && (!p.Frozen || n.Promoted):
			if _, err := os.Lstat(abs); errors.Is(err, os.ErrNotExist) {
				why = append(why, fmt.Errorf("%s: deleted from the real tree since the base was taken", pathlist.Printable(c.Path)))
			}
		case p.Frozen || rec.Ephemeral || recorded && n.Unknown == "" || k.Absent(abs):
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

// noteApplied records the applied state as the base of the sandbox's later
// changes. If the apply is undoable it also saves the previous base entries for
// the undo.
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

// pickedBy reports whether one of the parts has a change at an absolute path or
// below it.
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

// pathsIn returns those of paths at which a part has changes, relative to its
// root. all means that the whole part lies below one of them. It sets matched for
// each path that selects something.
func pathsIn(p compare.Part, paths []string, matched []bool) (inside []string, all bool) {
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

// changedAt reports whether one of the changes is at a path or below the path.
func changedAt(changes []diff.Change, path string) bool {
	for _, c := range changes {
		if hostfs.Within("/"+c.Path, "/"+path) {
			return true
		}
	}
	return false
}

// under returns absolute paths for paths relative to root.
func under(root string, paths []string) []string {
	abs := make([]string, len(paths))
	for i, p := range paths {
		abs[i] = filepath.Join(root, p)
	}
	return abs
}
