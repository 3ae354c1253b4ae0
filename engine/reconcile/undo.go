package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
)

// Undone is the result of [Reconciler.Undo] or [Reconciler.Redo]: the promotion and the restored paths.
type Undone struct {
	ID      string    `json:"id"` // of the undone promotion or apply
	Sandbox string    `json:"sandbox"`
	When    time.Time `json:"when"`
	Paths   []string  `json:"paths"`   // the target directories
	Changes int       `json:"changes"` // the number of restored paths
}

// Promotions lists the promotions and applies that can be undone, newest first. Those of one command are adjacent and
// have the same Group, the identifier for [Reconciler.Undo].
func (rc *Reconciler) Promotions() ([]promote.Promotion, error) {
	return promote.Promotions(rc.promotionsDir())
}

// Undo reverts the promotion or apply with the given identifier, or the last one for "". If its result has changed
// since, it returns ErrDrifted with the paths and changes nothing. The sandbox keeps its changes and may promote them
// again. If snapfs is killed, the next command completes the undo. Errors: ErrNotFound, ErrBusy (another one runs).
func (rc *Reconciler) Undo(ctx context.Context, id string) (Undone, error) {
	return rc.undo(ctx, id, nil, time.Time{})
}

// undo reverts the promotion with the given identifier, or only its files at or below paths. again is the time of the
// undo if Redo can do the promotion again, else zero.
func (rc *Reconciler) undo(ctx context.Context, id string, paths []string, again time.Time) (Undone, error) {
	group, err := rc.groupOf(id)
	if err != nil {
		return Undone{}, err
	}
	take, err := rc.selectPaths(group, paths)
	if err != nil {
		return Undone{}, err
	}
	for _, p := range group {
		if err := rc.RefuseUnfinished("undoing", p.Sandbox, p.Path); err != nil {
			return Undone{}, err
		}
	}
	u := Undone{ID: group[0].Group, Sandbox: group[0].Sandbox, When: group[0].When, Paths: []string{}}
	note := rc.readPromoted(u.ID)
	if err := rc.witnessTurn(events.PromotionUndoing, note, &u); err != nil {
		return u, err
	}
	// Restore the baseline before the files: a crash in between costs at most a conflict. In the other order, a
	// change of the sandbox would look promoted although it is not.
	promoteAgain, err := rc.undoBaseline(ctx, note, take)
	if err != nil {
		return u, err
	}
	err = rc.undoAll(ctx, group, note, take, again, &u)
	switch {
	case err != nil && len(u.Paths) == 0:
		return u, errors.Join(err, promoteAgain())
	case err != nil:
		return u, fmt.Errorf("undone in %v, but not everywhere: %w", u.Paths, err)
	}
	rc.noteTurn(note)
	rc.announceTurn(events.PromotionUndone, note, &u)
	if len(paths) > 0 {
		return u, nil
	}
	if err := rc.stages.NoteUndone(u.ID); err != nil {
		rc.notice("undone, but the log of stages was not updated: " + err.Error())
	}
	return u, nil
}

// undoAll reverts the promotions of one command, newest first, until one is refused, or does undone ones again. It
// holds the lock of the sandbox's baseline meanwhile.
func (rc *Reconciler) undoAll(ctx context.Context, group []promote.Promotion, note *promotedNote, take selection, again time.Time, u *Undone) error {
	rec := rc.recordOf(note)
	if rec == nil {
		rec, _ = rc.cat.Get(u.Sandbox) // nil if the sandbox is gone
	}
	o := promote.UndoOptions{Again: again, DryRun: true}
	return rc.baseline.WithLock(rec, func() error {
		if len(group) > 1 { // nothing is undone if one is refused
			for _, p := range group {
				if err := rc.undoSelected(ctx, p, note, take, o, new(Undone)); err != nil {
					return err
				}
			}
		}
		o.DryRun = false
		for _, p := range group {
			if err := rc.undoSelected(ctx, p, note, take, o, u); err != nil {
				return err
			}
		}
		return nil
	})
}

// undoSelected undoes the paths take of one promotion, or does it again, and adds the result to u.
func (rc *Reconciler) undoSelected(ctx context.Context, p promote.Promotion, note *promotedNote, take selection, o promote.UndoOptions, u *Undone) error {
	changes := p.Applied
	o.Same = note.sameIndex(p.Path)
	if take != nil {
		if changes = len(take[p.ID].ops); changes == 0 {
			return nil
		}
		o.Take = take[p.ID].has
	}
	if o.DryRun {
		_, err := rc.takeBack(ctx, p, o)
		return err
	}
	r, err := rc.undoOne(ctx, p, o)
	if rec := rc.recordOf(note); rec != nil {
		err = cmp.Or(err, rc.rememberRestored(rec.Name, r))
	}
	if err != nil {
		return err
	}
	if !slices.Contains(u.Paths, p.Path) {
		u.Paths = append(u.Paths, p.Path)
	}
	u.Changes += changes
	return nil
}

// ToUndo returns what [Reconciler.Undo] would undo, newest first: the promotions with the identifier or, for "", the
// last ones whose sandbox has one of the workspaces or whose target is one. Without workspaces, it returns the last
// ones anywhere. Error: ErrNotFound.
func (rc *Reconciler) ToUndo(id string, workspaces []string) ([]promote.Promotion, error) {
	if id != "" || len(workspaces) == 0 {
		return rc.groupOf(id)
	}
	all, err := rc.Promotions()
	for _, p := range all {
		if rc.isOf(p, workspaces) {
			return rc.groupOf(p.Group)
		}
	}
	if err != nil {
		return nil, err
	}
	refused := &errs.Error{Op: "undoing", Path: workspaces[0], Kind: errs.ErrNotFound, Err: errors.New("no apply or promotion of this workspace can be undone")}
	if len(all) > 0 {
		refused.Hints = []string{"snapfs undo --any", "snapfs undo --list"}
	}
	return nil, refused
}

// ForgetUndo deletes the undo and redo data of a promotion, and frees its space. The result stays, and can no longer
// be undone or done again. If snapfs is killed, the next command completes the deletion. Errors: ErrNotFound, ErrBusy
// (another promotion is running).
func (rc *Reconciler) ForgetUndo(ctx context.Context, id string) error {
	group, err := rc.groupOf(id)
	undone, uerr := rc.Undones()
	undone = slices.DeleteFunc(undone, func(p promote.Promotion) bool { return p.Group != id && p.ID != id })
	if err != nil && len(undone) == 0 {
		return errors.Join(err, uerr)
	}
	for _, p := range append(group, undone...) {
		if err := promote.Forget(ctx, rc.promotionsDir(), p.ID); err != nil {
			return err
		}
	}
	rc.dropPromoted(0)
	return nil
}

// groupOf returns all promotions of the command with an identifier, or of the last one for "", newest first.
func (rc *Reconciler) groupOf(id string) ([]promote.Promotion, error) {
	all, err := rc.Promotions()
	if err != nil && len(all) == 0 {
		return nil, err
	}
	var group []promote.Promotion
	for _, p := range all {
		if id == "" {
			id = p.Group
		}
		if p.Group == id || p.ID == id {
			id = p.Group
			group = append(group, p)
		}
	}
	if len(group) > 0 {
		return group, nil
	}
	refused := &errs.Error{Op: "undoing", Subject: pathlist.Printable(id), Kind: errs.ErrNotFound, Err: errors.New("no apply or promotion can be undone")}
	if id != "" {
		refused.Err = errors.New("no such apply or promotion can be undone")
		refused.Hints = []string{"snapfs undo --list"}
	}
	return nil, refused
}

// A promotedNote is a file that says which of the sandbox's originals a promotion replaced, for an undo.
type promotedNote struct {
	Group     string `json:"group"`
	Sandbox   string `json:"sandbox"`
	Workspace string `json:"workspace,omitempty"` // "" in a note of an older version
	// ID and Refreshed are those of the sandbox's record at the time of the promotion.
	ID        string                         `json:"sandbox_id"`
	Refreshed int                            `json:"refreshed"`
	Before    map[string]*baseline.JSONEntry `json:"before"`          // replaced entries by absolute path; nil for none
	After     map[string]*baseline.JSONEntry `json:"after,omitempty"` // promoted entries, after an undo
	// Indexes are gitresult.IndexDigests of git's index files as this left them, by absolute path.
	Indexes map[string]string `json:"indexes,omitempty"`
	// Tips are the promoted values of refs by the absolute path of their repository.
	Tips map[string][]gitresult.Tip `json:"tips,omitempty"`
}

// before stores in c.Before, for an undo, the original at an absolute path that a promotion replaces; nil for none.
func (c *promotedNote) before(k *baseline.Baseline, abs string) {
	c.Before[abs] = nil
	if before, had := k.Nodes[abs]; had {
		entry := baseline.JSONEntryOf(before)
		c.Before[abs] = &entry
	}
}

// promotedFile returns the path of the promotedNote of the promotion with the identifier group.
func (rc *Reconciler) promotedFile(group string) string {
	return filepath.Join(rc.cat.Dir(), "carried", group+".json")
}

// savePromoted writes, atomically, the note that says, for an undo, which originals a promotion has replaced.
func (rc *Reconciler) savePromoted(c *promotedNote) error {
	rc.dropPromoted(promote.History)
	path := rc.promotedFile(c.Group)
	data, err := exactjson.EncodeIndent(c, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path+".new", append(data, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errs.With("saving the note of a promotion", path, err)
	}
	return nil
}

// readPromoted returns a promotion's note; nil, on which an undo leaves the originals, if it is unreadable.
func (rc *Reconciler) readPromoted(group string) *promotedNote {
	if !snapshot.ValidID(group) {
		return nil
	}
	data, err := os.ReadFile(rc.promotedFile(group))
	c := new(promotedNote)
	if err != nil || exactjson.Decode(data, c) != nil {
		return nil
	}
	return c
}

// dropPromoted removes the notes of promotions that can no longer be undone or done again, if there are more than most.
func (rc *Reconciler) dropPromoted(most int) {
	list, err := os.ReadDir(filepath.Join(rc.cat.Dir(), "carried"))
	if err != nil || len(list) <= most {
		return
	}
	all, err := rc.Promotions()
	undone, uerr := rc.Undones()
	if err != nil || uerr != nil {
		return
	}
	all = append(all, undone...)
	used := map[string]bool{}
	for _, p := range all {
		used[p.Group+".json"] = true
	}
	for _, entry := range list {
		if !used[entry.Name()] {
			_ = os.Remove(filepath.Join(rc.cat.Dir(), "carried", entry.Name())) // the next call retries
		}
	}
}

// undoBaseline restores the sandbox's originals from before a promotion at the paths take, if the sandbox still has
// the same base. Calling again, the returned function, reverts that.
func (rc *Reconciler) undoBaseline(ctx context.Context, note *promotedNote, take selection) (again func() error, err error) {
	nothing := func() error { return nil }
	if note == nil || len(note.Before) == 0 {
		return nothing, nil
	}
	rec := rc.recordOf(note)
	if rec == nil {
		return nothing, nil
	}
	was := map[string]baseline.Entry{}
	err = rc.baseline.Update(ctx, rec, func(k *baseline.Baseline) error {
		for path, entry := range note.Before {
			if n, ok := k.Nodes[path]; ok && n.Promoted && take.hasKey(path) {
				was[path] = n
				note.after(path, n)
				k.Unset(path)
				if entry != nil {
					k.Set(path, entry.Entry())
				}
			}
		}
		return nil
	})
	return func() error {
		return rc.baseline.Update(context.WithoutCancel(ctx), rec, func(k *baseline.Baseline) error {
			for path, n := range was {
				k.Set(path, n)
			}
			return nil
		})
	}, err
}

// recordOf returns the sandbox of a promotion's note, renamed or not; nil if gone or with another base since.
func (rc *Reconciler) recordOf(note *promotedNote) *catalog.Record {
	if note == nil {
		return nil
	}
	rec, err := rc.cat.Get(note.Sandbox)
	all := []*catalog.Record{rec}
	if err != nil || rec.ID != note.ID {
		all, _ = rc.cat.List() // one that cannot be read is as good as gone
	}
	i := slices.IndexFunc(all, func(r *catalog.Record) bool { return r.ID == note.ID && r.Refreshed == note.Refreshed })
	if i < 0 {
		return nil
	}
	return all[i]
}

// undoParts undoes the promotions ids of single directories, which were complete when that of another was refused.
func (rc *Reconciler) undoParts(ctx context.Context, name string, ids []string) error {
	var failures []error
	for i := len(ids) - 1; i >= 0; i-- {
		r, err := promote.Undo(ctx, rc.promotionsDir(), ids[i])
		failures = append(failures, err, rc.rememberRestored(name, r))
	}
	return errors.Join(failures...)
}

// rememberRestored saves the stamps (inode, change time) of files that an undo restored, where the promotion had
// replaced the sandbox's own state. Elsewhere a later apply must see the user's change as drift.
func (rc *Reconciler) rememberRestored(name string, r promote.Recovery) error {
	all, err := rc.baseline.Stamps(name)
	if err != nil {
		return err
	}
	known, own := all[r.Path], map[string]promote.Stamp{}
	for path, s := range r.Stamps {
		was, had := known[path]
		if left, did := r.Left[path]; had && did && was.Ino == left.Ino && was.CTime.Equal(left.CTime) {
			own[path] = s
		}
	}
	return rc.baseline.Remember(name, r.Path, own, own)
}

// rememberRecovered saves the stamps of files restored after a killed promotion, so that a later apply does not take
// them for drift. A killed apply had found no drift, so all its restored files get stamps.
func (rc *Reconciler) rememberRecovered(r promote.Recovery) error {
	switch {
	case r.Left != nil && rc.recordOf(rc.readPromoted(r.Group)) != nil:
		return rc.rememberRestored(r.Sandbox, r)
	case r.Left == nil && (IsApply(r.Group) || r.Group == r.ID): // an apply without undo data had no group in older versions
		return rc.baseline.Remember(r.Sandbox, r.Path, r.Stamps, r.Stamps)
	}
	return nil
}
