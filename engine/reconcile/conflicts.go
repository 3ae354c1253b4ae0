package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/errs"
)

// refreshConflict is a conflict that a refresh left in the sandbox. A text file
// then has conflict markers; any other path is in the sandbox's state.
type refreshConflict struct {
	Path   string     `json:"path"` // absolute
	Kind   merge.Kind `json:"kind"`
	Why    string     `json:"why"`
	Marked bool       `json:"marked"`
	// Alone is set if the conflict is about a directory itself and not about its entries.
	Alone bool `json:"alone,omitempty"`
	// MineName and RealName are the names of the sides in the conflict markers.
	MineName string `json:"mine_name"`
	RealName string `json:"real_name"`
	// MinePath and RealPath are the absolute paths of the sides, where they
	// differ from Path.
	MinePath string `json:"mine_path,omitempty"`
	RealPath string `json:"real_path,omitempty"`
	// Also are further absolute paths that the same answer resolves.
	Also []string `json:"also,omitempty"`
	// Mine, Base and Real are the names of files beside conflicts.json with the
	// three versions of a text; "" for a version that does not exist.
	Mine string `json:"mine,omitempty"`
	Base string `json:"base,omitempty"`
	Real string `json:"real,omitempty"`
	// Mode is the mode of the sandbox's version.
	Mode fs.FileMode `json:"mode,omitempty"`
	// Resolved is the answer to the conflict ("mine", "theirs" or "tool"), or "".
	Resolved string `json:"resolved,omitempty"`
}

// conflictList is the content of conflicts.json.
type conflictList struct {
	Format    int               `json:"format"`
	Conflicts []refreshConflict `json:"conflicts"`
}

const conflictsFile = "conflicts.json"

// readConflicts reads the conflicts that the last refresh left; an empty list if
// it left none. Error: errs.ErrCorrupt.
func (rc *Reconciler) readConflicts(rec *catalog.Record) (conflictList, error) {
	list := conflictList{Format: 1}
	path := filepath.Join(rc.baseline.BaseDir(rec.Name, rec.Refreshed), conflictsFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return list, &errs.Error{Op: "reading the conflicts of", Path: path, Kind: errs.ErrCorrupt, Err: err}
	}
	for i := range list.Conflicts {
		c := &list.Conflicts[i]
		c.Path, c.MinePath, c.RealPath, c.Also = baseline.UnescapePath(c.Path), baseline.UnescapePath(c.MinePath), baseline.UnescapePath(c.RealPath), each(c.Also, baseline.UnescapePath)
	}
	return list, nil
}

// saveConflicts replaces the list of conflicts atomically.
func (rc *Reconciler) saveConflicts(rec *catalog.Record, list conflictList) error {
	saved := conflictList{Format: list.Format, Conflicts: []refreshConflict{}}
	for _, c := range list.Conflicts {
		c.Path, c.MinePath, c.RealPath, c.Also = baseline.EscapePath(c.Path), baseline.EscapePath(c.MinePath), baseline.EscapePath(c.RealPath), each(c.Also, baseline.EscapePath)
		saved.Conflicts = append(saved.Conflicts, c)
	}
	data, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return &errs.Error{Op: "saving the conflicts of", Path: rec.Name, Kind: errs.ErrCorrupt, Err: err}
	}
	rel, err := filepath.Rel(rc.cat.Path(rec.Name), rc.baseline.BaseDir(rec.Name, rec.Refreshed))
	if err != nil {
		return err
	}
	return rc.cat.WriteFile(rec.Name, filepath.Join(rel, conflictsFile), append(data, '\n'))
}

// Conflicts lists the unresolved conflicts that a refresh left in a sandbox.
// Cost: one system call if there are none; otherwise that of
// compare.Comparer.Diff.
func (rc *Reconciler) Conflicts(ctx context.Context, name string) ([]Conflict, error) {
	rec, err := rc.cat.Get(name)
	if err != nil {
		return nil, err
	}
	list, err := rc.readConflicts(rec)
	if err != nil || len(list.Conflicts) == 0 {
		return nil, err
	}
	changes, err := rc.compare.Changes(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer changes.Close()
	return rc.unresolved(ctx, rec, changes)
}

// unresolved lists the unresolved conflicts. A conflict is resolved when it was
// answered, when the text has no conflict markers any more, or when the sandbox
// has the real tree's state at its paths.
func (rc *Reconciler) unresolved(ctx context.Context, rec *catalog.Record, changes *compare.Changes) ([]Conflict, error) {
	list, err := rc.readConflicts(rec)
	if err != nil || len(list.Conflicts) == 0 {
		return nil, err
	}
	var open []Conflict
	changed := compare.PlacesOf(changes)
	for _, c := range list.Conflicts {
		if err := ctx.Err(); err != nil {
			return nil, &errs.Error{Op: "checking conflicts", Path: rec.Name, Kind: errs.ErrInterrupted, Err: err}
		}
		stands, err := c.isOpen(changed)
		if err != nil {
			return nil, err
		}
		if stands {
			open = append(open, c.asConflict())
		}
	}
	return open, nil
}

// isOpen reports whether the conflict is unresolved.
func (c *refreshConflict) isOpen(changed compare.Places) (bool, error) {
	if c.Resolved != "" {
		return false, nil
	}
	part := c.changedIn(changed)
	if part == nil || !c.Marked {
		return part != nil, nil
	}
	rel, err := filepath.Rel(part.Root, c.Path)
	if err != nil {
		return true, nil // outside the part: open until answered
	}
	l := baseline.RootedReader{Root: part.New}
	f, err := l.Open(rel)
	if errors.Is(err, errs.ErrNotFound) {
		return false, nil // deleted, or no regular file any more
	}
	if err != nil {
		return true, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4*merge.TextMax))
	return err != nil || merge.HasMarkers(text, c.MineName, c.RealName), err
}

// conflict returns the public form of a conflict, with absolute paths.
func (m *partMerge) conflict(k merge.Conflict) Conflict {
	c := Conflict{Path: filepath.Join(m.path, k.Path), Kind: k.Kind, Why: k.Why}
	if k.MinePath != "" {
		c.MinePath = filepath.Join(m.path, k.MinePath)
	}
	if k.RealPath != "" {
		c.RealPath = filepath.Join(m.path, k.RealPath)
	}
	if s, split := m.split[k.Path]; split && k.Kind == merge.Links {
		c.mends = s.Hints(m.rec.Name)
	} else if k.Kind == merge.Lost {
		c.mends = lostHints(m.rec.Name, c.Path)
	}
	c.Also = each(k.Also, func(path string) string { return filepath.Join(m.path, path) })
	return c
}

// places returns all paths of the conflict.
func (c *Conflict) places() []string {
	paths := append([]string{c.Path, c.MinePath, c.RealPath}, c.Also...)
	return slices.DeleteFunc(paths, func(path string) bool { return path == "" })
}

// asConflict returns the public form of the conflict.
func (c *refreshConflict) asConflict() Conflict {
	return Conflict{
		Path: c.Path, Kind: c.Kind, Why: c.Why, MinePath: c.MinePath, RealPath: c.RealPath, Also: c.Also, InSandbox: true, alone: c.Alone,
	}
}

// places returns all paths of the conflict.
func (c *refreshConflict) places() []string {
	conflict := c.asConflict()
	return conflict.places()
}

// changedIn returns the part with a change at the conflict's paths, or nil.
func (c *refreshConflict) changedIn(changed compare.Places) *compare.Part {
	return changed.At(c.places(), c.Alone)
}

// each returns the results of a function for all elements of a list.
func each[A, B any](list []A, of func(A) B) []B {
	made := make([]B, len(list))
	for i, a := range list {
		made[i] = of(a)
	}
	return made
}

// NoteRollback updates the state of a sandbox after a rollback: its promotions no longer count
// as its base, and all conflicts of the last refresh may be open again.
func (rc *Reconciler) NoteRollback(ctx context.Context, rec *catalog.Record) error {
	dir := rc.baseline.BaseDir(rec.Name, rec.Refreshed)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	list, err := rc.readConflicts(rec)
	if err != nil {
		return err
	}
	for i := range list.Conflicts {
		list.Conflicts[i].Resolved = ""
	}
	if len(list.Conflicts) > 0 {
		if err := rc.saveConflicts(rec, list); err != nil {
			return err
		}
	}
	return rc.baseline.Update(ctx, rec, func(k *baseline.Baseline) error {
		for path := range k.Nodes {
			k.UndoPromotion(path)
		}
		return nil
	})
}

// conflictsOf lists the unresolved conflicts of a record.
func (rc *Reconciler) conflictsOf(ctx context.Context, rec *catalog.Record) ([]Conflict, error) {
	changes, err := rc.compare.Changes(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer changes.Close()
	return rc.unresolved(ctx, rec, changes)
}
