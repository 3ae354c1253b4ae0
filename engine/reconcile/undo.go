package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// Undone is a promotion, or an apply, that was taken back.
type Undone struct {
	// ID is what the request is called that made it.
	ID      string    `json:"id"`
	Sandbox string    `json:"sandbox"`
	When    time.Time `json:"when"`
	// Paths are the targets, and Changes how many paths are as they were.
	Paths   []string `json:"paths"`
	Changes int      `json:"changes"`
}

// Promotions lists what can be undone, applies too, newest first. Those of one request
// follow one another, and share what [Engine.Undo] takes.
func (rc *Reconciler) Promotions() ([]promote.Promotion, error) {
	return promote.Promotions(rc.promotionsDir())
}

// Undo takes a promotion or an apply back: the one of that ID, or the last one for "". Where
// somebody has changed its result since: ErrDrifted, naming the paths, and nothing
// was touched. The sandbox, where it is still there, has its changes still, and
// may promote them again. Safe to kill: the next command completes it.
// Errors: ErrNotFound, ErrBusy (another promotion runs).
func (rc *Reconciler) Undo(ctx context.Context, id string) (Undone, error) {
	group, err := rc.groupOf(id)
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
	// What the sandbox holds of it is the base no more, first of all: a crash in
	// between costs a conflict at most, the other way round a change would look
	// carried that is not.
	again, err := rc.undoBaseline(ctx, note)
	if err != nil {
		return u, err
	}
	rec, _ := rc.cat.Get(u.Sandbox) // which may be gone
	err = rc.baseline.WithLock(rec, func() error { return rc.undoAll(ctx, group, note, &u) })
	switch {
	case err != nil && len(u.Paths) == 0:
		return u, errors.Join(err, again())
	case err != nil:
		return u, fmt.Errorf("taken back in %v, but not all: %w", u.Paths, err)
	}
	rc.dropPromoted()
	if err := rc.stages.NoteUndone(u.ID); err != nil {
		rc.notice("undone, but it is not noted in the log: " + err.Error())
	}
	return u, nil
}

// undoAll takes back the promotions of a group, until one is refused.
func (rc *Reconciler) undoAll(ctx context.Context, group []promote.Promotion, note *promotedNote, u *Undone) error {
	for _, p := range group { // newest first
		r, err := promote.Undo(ctx, rc.promotionsDir(), p.ID)
		if rc.recordOf(note) != nil {
			err = cmp.Or(err, rc.rememberRestored(p.Sandbox, r))
		}
		if err != nil {
			return err
		}
		u.Paths = append(u.Paths, p.Path)
		u.Changes += p.Applied
	}
	return nil
}

// ForgetUndo drops what was kept to take a promotion or an apply back, and its room with it: it cannot be
// undone then. Its result stays. Safe to kill: the next command completes it.
// Errors: ErrNotFound, ErrBusy (another promotion runs).
func (rc *Reconciler) ForgetUndo(ctx context.Context, id string) error {
	group, err := rc.groupOf(id)
	if err != nil {
		return err
	}
	for _, p := range group {
		if err := promote.Forget(ctx, rc.promotionsDir(), p.ID); err != nil {
			return err
		}
	}
	rc.dropPromoted()
	return nil
}

// groupOf finds the promotions that are taken back together.
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
	refused := &errs.Error{Op: "undoing", Subject: pathlist.Printable(id), Kind: errs.ErrNotFound, Err: errors.New("there is no apply or promotion that could be undone")}
	if id != "" {
		refused.Err = errors.New("it is none of those that can be undone")
		refused.Hints = []string{"snapfs undo --list"}
	}
	return nil, refused
}

// A carried says what a promotion, or an apply, has changed in what is kept of its sandbox's
// base. It lies in the state directory, beside what the promotion itself needs to
// be undone.
type promotedNote struct {
	Group   string `json:"group"`
	Sandbox string `json:"sandbox"`
	// ID and Refreshed are those of the sandbox's record then.
	ID        string `json:"sandbox_id"`
	Refreshed int    `json:"refreshed"`
	// Before is what was kept, by absolute path; nil for nothing.
	Before map[string]*baseline.JSONEntry `json:"before"`
}

// before notes what was kept at an absolute path.
func (c *promotedNote) before(k *baseline.Baseline, abs string) {
	c.Before[baseline.EscapePath(abs)] = nil
	if before, had := k.Nodes[abs]; had {
		entry := baseline.JSONEntryOf(before)
		c.Before[baseline.EscapePath(abs)] = &entry
	}
}

func (rc *Reconciler) promotedFile(group string) string {
	return filepath.Join(rc.cat.Dir(), "carried", group+".json")
}

func (rc *Reconciler) savePromoted(c *promotedNote) error {
	rc.dropPromoted()
	path := rc.promotedFile(c.Group)
	data, err := json.MarshalIndent(c, "", "  ")
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
		return &errs.Error{Op: "noting what was promoted", Path: path, Kind: errs.KindOf(err), Err: err}
	}
	return nil
}

// readPromoted is nil where nothing is noted: then there is nothing to go back to.
func (rc *Reconciler) readPromoted(group string) *promotedNote {
	if !snapshot.ValidID(group) {
		return nil
	}
	data, err := os.ReadFile(rc.promotedFile(group))
	c := new(promotedNote)
	if err != nil || json.Unmarshal(data, c) != nil {
		return nil
	}
	return c
}

// dropPromoted removes the notes of promotions that cannot be undone any more.
func (rc *Reconciler) dropPromoted() {
	list, err := os.ReadDir(filepath.Join(rc.cat.Dir(), "carried"))
	if err != nil {
		return
	}
	all, err := rc.Promotions()
	if err != nil {
		return
	}
	used := map[string]bool{}
	for _, p := range all {
		used[p.Group+".json"] = true
	}
	for _, entry := range list {
		if !used[entry.Name()] {
			_ = os.Remove(filepath.Join(rc.cat.Dir(), "carried", entry.Name())) // or the next one does
		}
	}
}

// undoBaseline makes what was the base before a promotion the base again, as long as
// the sandbox is still on it. again puts it back.
func (rc *Reconciler) undoBaseline(ctx context.Context, note *promotedNote) (again func() error, err error) {
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
			path = baseline.UnescapePath(path)
			if n, ok := k.Nodes[path]; ok && n.Promoted {
				was[path] = n
				k.Changed = true
				delete(k.Nodes, path)
				if entry != nil {
					k.Nodes[path] = entry.Entry()
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

// recordOf is the record of a sandbox that is still on the base that a note is about;
// nil where it is gone, or another one.
func (rc *Reconciler) recordOf(note *promotedNote) *catalog.Record {
	if note == nil {
		return nil
	}
	rec, err := rc.cat.Get(note.Sandbox)
	if err != nil || rec.ID != note.ID || rec.Refreshed != note.Refreshed {
		return nil
	}
	return rec
}

// takeBack undoes the parts that were applied before one that was refused.
func (rc *Reconciler) undoParts(ctx context.Context, name string, ids []string) error {
	var failures []error
	for i := len(ids) - 1; i >= 0; i-- {
		r, err := promote.Undo(ctx, rc.promotionsDir(), ids[i])
		failures = append(failures, err, rc.rememberRestored(name, r))
	}
	return errors.Join(failures...)
}

// putBack remembers the stamps of what was put back where the sandbox knew what had been
// put there for its own: there it had displaced nothing that the sandbox did not know. What
// a merge had found was the real tree's own: whoever compares with the sandbox alone must
// see it as drifted, or he writes over it.
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
	return rc.baseline.Remember(name, r.Path, own)
}

// putBackKilled is putBack for what was ended after a crash. An apply that had not
// come to its end had found nothing that the sandbox did not know.
func (rc *Reconciler) rememberRecovered(r promote.Recovery) error {
	switch {
	case r.Left != nil && rc.recordOf(rc.readPromoted(r.Group)) != nil:
		return rc.rememberRestored(r.Sandbox, r)
	case r.Left == nil && (IsApply(r.Group) || r.Group == r.ID): // one had no group when it could not be undone
		return rc.baseline.Remember(r.Sandbox, r.Path, r.Stamps)
	}
	return nil
}

// PromotionsIn names what can be undone in a state directory, without opening it.
func PromotionsIn(state string) (ids []string) {
	all, err := promote.Promotions(filepath.Join(state, "promotions"))
	if err != nil {
		return nil
	}
	for _, p := range all {
		if !slices.Contains(ids, p.Group) {
			ids = append(ids, p.Group)
		}
	}
	return ids
}
