package reconcile

import (
	"context"
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
	"github.com/snapfs/snapfs/internal/exactjson"
)

// refreshConflict is a conflict, in conflicts.json, that a refresh (merge of real changes into a sandbox) left there.
// A marked text file has conflict markers; at any other path the sandbox has its own version.
type refreshConflict struct {
	Path     string     `json:"path"` // absolute
	Kind     merge.Kind `json:"kind"`
	Why      string     `json:"why"`
	Marked   bool       `json:"marked"`
	Alone    bool       `json:"alone,omitempty"` // the conflict is about a directory itself, not its entries
	MineName string     `json:"mine_name"`       // of the sides, in conflict markers
	RealName string     `json:"real_name"`
	// MinePath and RealPath are the absolute paths of the sides, where they differ from Path.
	MinePath string   `json:"mine_path,omitempty"`
	RealPath string   `json:"real_path,omitempty"`
	Also     []string `json:"also,omitempty"` // further absolute paths that the same answer resolves
	// Mine, Base and Real name files beside conflicts.json with a text's three versions, "" for none.
	Mine     string      `json:"mine,omitempty"`
	Base     string      `json:"base,omitempty"`
	Real     string      `json:"real,omitempty"`
	Mode     fs.FileMode `json:"mode,omitempty"`     // the mode of the sandbox's version
	Resolved string      `json:"resolved,omitempty"` // the answer: "mine", "theirs", "tool", or ""
}

// conflictList is the content of conflicts.json, the file with the conflicts that a refresh left.
type conflictList struct {
	Format    int               `json:"format"`
	Conflicts []refreshConflict `json:"conflicts"`
}

const conflictsFile = "conflicts.json"

// readConflicts reads the conflicts that the sandbox's last refresh left, if any. Error: errs.ErrCorrupt.
func (rc *Reconciler) readConflicts(rec *catalog.Record) (conflictList, error) {
	list := conflictList{Format: 1}
	path := filepath.Join(rc.baseline.BaseDir(rec.Name, rec.Refreshed), conflictsFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err == nil {
		err = exactjson.Decode(data, &list)
	}
	if err != nil {
		return list, &errs.Error{Op: "reading the conflicts of", Path: path, Kind: errs.ErrCorrupt, Err: err}
	}
	return list, nil
}

// saveConflicts replaces, atomically, the file conflicts.json with the conflicts that a refresh left.
func (rc *Reconciler) saveConflicts(rec *catalog.Record, list conflictList) error {
	if list.Conflicts == nil {
		list.Conflicts = []refreshConflict{}
	}
	data, err := exactjson.EncodeIndent(list, "", "  ")
	if err != nil {
		return &errs.Error{Op: "saving the conflicts of", Path: rec.Name, Kind: errs.ErrCorrupt, Err: err}
	}
	rel, err := filepath.Rel(rc.cat.Path(rec.Name), rc.baseline.BaseDir(rec.Name, rec.Refreshed))
	if err != nil {
		return err
	}
	return rc.cat.WriteFile(rec.Name, filepath.Join(rel, conflictsFile), append(data, '\n'))
}

// Conflicts lists the unresolved conflicts that a refresh left in a sandbox. Cost: one system call if there are none;
// otherwise that of compare.Comparer.Diff.
func (rc *Reconciler) Conflicts(ctx context.Context, name string) ([]Conflict, error) {
	rec, err := rc.cat.Get(name)
	if err != nil {
		return nil, err
	}
	list, err := rc.readConflicts(rec)
	if err != nil || len(list.Conflicts) == 0 {
		return nil, err
	}
	return rc.conflictsOf(ctx, rec)
}

// unresolved lists the conflicts of the last refresh that are still open. A conflict is resolved when it was
// answered, when its text has no conflict markers any more, or when the sandbox has the real version.
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

// isOpen reports whether the conflict is unresolved. changed has the sandbox's present changes.
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

// conflict returns a conflict of the merge in its public form, with absolute paths and hints.
func (m *partMerge) conflict(k merge.Conflict) Conflict {
	c := Conflict{Path: filepath.Join(m.path, k.Path), Kind: k.Kind, Why: k.Why}
	if k.MinePath != "" {
		c.MinePath = filepath.Join(m.path, k.MinePath)
	}
	if k.RealPath != "" {
		c.RealPath = filepath.Join(m.path, k.RealPath)
	}
	if s, split := m.splitAt(&k); split {
		c.mends = s.Hints(m.rec.Name)
	} else if k.Kind == merge.Lost {
		c.mends = compare.LostHints(m.rec.Name, c.Path)
	}
	c.Also = each(k.Also, func(path string) string { return filepath.Join(m.path, path) })
	return c
}

// places returns all paths that the user's answer to the conflict decides, in the sandbox or the real tree.
func (c *Conflict) places() []string {
	paths := append([]string{c.Path, c.MinePath, c.RealPath}, c.Also...)
	return slices.DeleteFunc(paths, func(path string) bool { return path == "" })
}

// asConflict returns the stored conflict of a refresh in the public form, in which the user sees it.
func (c *refreshConflict) asConflict() Conflict {
	return Conflict{
		Path: c.Path, Kind: c.Kind, Why: c.Why, MinePath: c.MinePath, RealPath: c.RealPath, Also: c.Also, InSandbox: true, alone: c.Alone,
	}
}

// places returns all paths that the user's answer to the conflict decides, in the sandbox or the real tree.
func (c *refreshConflict) places() []string {
	conflict := c.asConflict()
	return conflict.places()
}

// changedIn returns the directory's list of changes that has one at the conflict's paths, from changed; nil if none.
func (c *refreshConflict) changedIn(changed compare.Places) *compare.Part {
	return changed.At(c.places(), c.Alone)
}

// each returns the results of the function of for all elements of a list, in their order.
func each[A, B any](list []A, of func(A) B) []B {
	made := make([]B, len(list))
	for i, a := range list {
		made[i] = of(a)
	}
	return made
}

// RewindBaseline removes from a sandbox's baseline what was promoted after the snapshot to (zero: after the base).
// Rollback and Fork call it before they change files. After an error or a kill the files are as before; a merge then
// finds the promoted changes in the real tree.
func (rc *Reconciler) RewindBaseline(ctx context.Context, rec *catalog.Record, to catalog.NamedSnapshot) error {
	if err := rc.baseline.ForgetSince(rec.Name, to.Taken); err != nil {
		return err
	}
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

// conflictsOf compares a sandbox with its base and lists its open conflicts of the last refresh.
func (rc *Reconciler) conflictsOf(ctx context.Context, rec *catalog.Record) ([]Conflict, error) {
	changes, err := rc.compare.Changes(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer changes.Close()
	return rc.unresolved(ctx, rec, changes)
}
