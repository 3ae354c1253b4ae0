package reconcile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
)

// UndoPaths undoes a promotion at the absolute paths and below them, or all of it without paths.
// [Reconciler.Redo] can do it again; the rest can be undone later. Git's own files are undone with the whole
// promotion only. Errors: those of Undo; ErrNotFound for a path that the promotion did not change; ErrConflict for a
// path in a directory that it made, and for one of several names of a file.
func (rc *Reconciler) UndoPaths(ctx context.Context, id string, paths []string) (Undone, error) {
	return rc.undo(ctx, id, paths, time.Now())
}

// Undones lists the undone promotions that can be done again, the last undone first.
func (rc *Reconciler) Undones() ([]promote.Promotion, error) {
	return promote.Undones(rc.promotionsDir())
}

// ToRedo returns what [Reconciler.Redo] would do again: the promotions of the last undo whose sandbox has one of the
// workspaces, or whose target is one. Without workspaces any undo counts. Error: ErrNotFound.
func (rc *Reconciler) ToRedo(workspaces []string) ([]promote.Promotion, error) {
	all, err := rc.Undones()
	for _, p := range all {
		if len(workspaces) == 0 || rc.isOf(p, workspaces) {
			return slices.DeleteFunc(all, func(x promote.Promotion) bool { return x.Group != p.Group || !x.Undone.Equal(p.Undone) }), nil
		}
	}
	if err != nil {
		return nil, err
	}
	refused := &errs.Error{Op: "doing again", Kind: errs.ErrNotFound, Err: errors.New("no undo can be done again")}
	if len(workspaces) > 0 {
		refused.Path = workspaces[0]
	}
	if len(all) > 0 {
		refused.Hints = []string{"snapfs redo --any"}
	}
	return nil, refused
}

// isOf reports whether the promotion's sandbox has one of the workspaces, or its target is one of them.
func (rc *Reconciler) isOf(p promote.Promotion, workspaces []string) bool {
	note := rc.readPromoted(p.Group)
	return slices.Contains(workspaces, p.Path) || note != nil && slices.Contains(workspaces, note.Workspace)
}

// Redo does the promotions of an undo again, those that ToRedo lists. If the real tree has changed since, it returns
// ErrDrifted with the paths and changes nothing. If snapfs is killed, the next command completes the redo. Errors:
// ErrCorrupt if git has removed objects of the promoted commits; ErrBusy.
func (rc *Reconciler) Redo(ctx context.Context, group []promote.Promotion) (Undone, error) {
	u := Undone{ID: group[0].Group, Sandbox: group[0].Sandbox, When: group[0].When, Paths: []string{}}
	for _, p := range group {
		if err := rc.RefuseUnfinished("doing again", p.Sandbox, p.Path); err != nil {
			return u, err
		}
	}
	note := rc.readPromoted(u.ID)
	if note != nil {
		for repository, tips := range note.Tips {
			if err := gitresult.Complete(repository, tips); err != nil {
				return u, err
			}
		}
	}
	if err := rc.witnessTurn(events.PromotionRedoing, note, &u); err != nil {
		return u, err
	}
	slices.Reverse(group)
	err := rc.undoAll(ctx, group, note, nil, time.Time{}, &u)
	switch {
	case err != nil && len(u.Paths) == 0:
		return u, err
	case err != nil:
		return u, fmt.Errorf("done again in %v, but not everywhere: %w", u.Paths, err)
	}
	// As after a promotion, the cost of a failure is at most a conflict later.
	if err := rc.redoBaseline(context.WithoutCancel(ctx), group, note); err != nil {
		rc.notice("done again, but the sandbox's baseline was not updated: " + err.Error())
	}
	rc.noteTurn(note)
	rc.announceTurn(events.PromotionRedone, note, &u)
	if err := rc.stages.NoteRedone(u.ID); err != nil {
		rc.notice("done again, but the log of stages was not updated: " + err.Error())
	}
	return u, nil
}

// redoBaseline makes redone files the originals of the sandbox's later changes again, unless it has a newer base.
func (rc *Reconciler) redoBaseline(ctx context.Context, group []promote.Promotion, note *promotedNote) error {
	rec := rc.recordOf(note)
	if rec == nil || len(note.After) == 0 {
		return nil
	}
	done := selection{}
	for _, p := range group {
		_, ops, err := promote.Paths(rc.promotionsDir(), p.ID)
		if err != nil {
			return err
		}
		done.add(p, ops)
	}
	return rc.baseline.Update(ctx, rec, func(k *baseline.Baseline) error {
		for path, entry := range note.After {
			if n, had := k.Nodes[path]; done.hasKey(path) && !(had && n.Promoted) {
				k.Set(path, entry.Entry())
			}
		}
		return nil
	})
}

// after stores n, the original that a promotion set for a file at an absolute path, for a redo.
func (c *promotedNote) after(path string, n baseline.Entry) {
	if c.After == nil {
		c.After = map[string]*baseline.JSONEntry{}
	}
	entry := baseline.JSONEntryOf(n)
	c.After[path] = &entry
}

// noteTurn saves the note of how a promotion, undone or done again, changed the sandbox's originals, and removes old
// notes. If that fails, the next undo or redo costs at most a conflict later.
func (rc *Reconciler) noteTurn(c *promotedNote) {
	if c == nil {
		rc.dropPromoted(0)
		return
	}
	for path := range c.Indexes {
		if data, err := os.ReadFile(path); err == nil {
			c.Indexes[path] = gitresult.IndexDigest(data)
		}
	}
	if err := rc.savePromoted(c); err != nil {
		rc.notice(err.Error())
	}
	rc.dropPromoted(0)
}

// A selection holds the paths to undo of each promotion, by its id. nil selects everything.
type selection map[string]selected

// selected holds the paths to undo of one promotion, relative to its target (ops), and their keys in a baseline.
type selected struct{ ops, keys map[string]bool }

func (s selection) add(p promote.Promotion, ops []string) {
	one := selected{map[string]bool{}, map[string]bool{}}
	for _, op := range ops {
		one.ops[op], one.keys[filepath.Join(p.Path, op)], one.keys[baseline.KeyIn(p.Path, op)] = true, true, true
	}
	s[p.ID] = one
}

func (s selected) has(path string) bool { return s.ops[path] }

// hasKey reports whether key, by which a path's original is stored, is of a selected path or of one below.
func (s selection) hasKey(key string) bool {
	if s == nil {
		return true
	}
	for _, p := range s {
		for at := key; at != ""; at = at[:max(0, strings.LastIndexByte(at, '/'))] {
			if p.keys[at] {
				return true
			}
		}
	}
	return false
}

// selectPaths returns which paths of the promotions to undo are at or below paths; nil if paths is empty.
func (rc *Reconciler) selectPaths(group []promote.Promotion, paths []string) (selection, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	all, found, above := selection{}, map[string]bool{}, map[string]string{}
	files, git := 0, 0
	for _, p := range group {
		_, ops, err := promote.Paths(rc.promotionsDir(), p.ID)
		if err != nil {
			return nil, err
		}
		var taken []string
		for _, op := range ops {
			abs, take := filepath.Join(p.Path, op), false
			for _, path := range paths {
				if hostfs.Within(abs, path) {
					take, found[path] = true, true
				} else if hostfs.Within(path, abs) {
					above[path] = abs
				}
			}
			switch {
			case !take:
			case slices.Contains(strings.Split(op, "/"), ".git"):
				git++
			default:
				taken = append(taken, op)
			}
		}
		all.add(p, taken)
		files += len(taken)
	}
	for _, path := range paths {
		if !found[path] {
			return nil, notUndone(group[0].Group, path, above[path])
		}
	}
	switch {
	case files == 0:
		return nil, &errs.Error{
			Op: "undoing", Path: pathlist.Printable(paths[0]), Kind: errs.ErrNotSupported,
			Err: errors.New("commits and other files of git are undone with the whole promotion"), Hints: []string{"snapfs undo " + group[0].Group},
		}
	case git > 0:
		rc.notice("commits and other files of git stay as they are: they are undone with the whole promotion")
	}
	return all, nil
}

// notUndone returns the error for a path that cannot be undone: promotion id did not change it or, unless above is
// "", made it together with the directory above, which must be undone instead.
func notUndone(id, path, above string) error {
	e := &errs.Error{Op: "undoing", Path: pathlist.Printable(path), Kind: errs.ErrNotFound, Err: errors.New(id + " did not change it"), Hints: []string{"snapfs undo --list"}}
	if above != "" {
		above = pathlist.Printable(above)
		e.Kind, e.Err, e.Hints = errs.ErrConflict, errors.New("it came with "+above+", and is undone with it"), []string{"snapfs undo " + above}
	}
	return e
}
