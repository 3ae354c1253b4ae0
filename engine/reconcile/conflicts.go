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
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/errs"
)

// A refreshConflict is a conflict that a refresh has brought into the sandbox:
// a text has both sides between marks there, anything else is as the sandbox had
// it.
type refreshConflict struct {
	Path   string     `json:"path"` // absolute
	Kind   merge.Kind `json:"kind"`
	Why    string     `json:"why"`
	Marked bool       `json:"marked"`
	// Alone: it is about a directory itself, and not about what lies in it.
	Alone bool `json:"alone,omitempty"`
	// MineName and RealName are what the marks call the sides.
	MineName string `json:"mine_name"`
	RealName string `json:"real_name"`
	// MinePath and RealPath, where a side has it elsewhere, are absolute.
	MinePath string `json:"mine_path,omitempty"`
	RealPath string `json:"real_path,omitempty"`
	// Also are the other places, absolute, that wait for the same answer.
	Also []string `json:"also,omitempty"`
	// Mine, Base and Real are the files, beside this one, with the versions of
	// a marked text; "" where there was none.
	Mine string `json:"mine,omitempty"`
	Base string `json:"base,omitempty"`
	Real string `json:"real,omitempty"`
	// Mode is what the sandbox's version has.
	Mode fs.FileMode `json:"mode,omitempty"`
	// Resolved says how, or "".
	Resolved string `json:"resolved,omitempty"`
}

type conflictList struct {
	Format    int               `json:"format"`
	Conflicts []refreshConflict `json:"conflicts"`
}

const conflictsFile = "conflicts.json"

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

func (rc *Reconciler) saveConflicts(rec *catalog.Record, list conflictList) error {
	saved := conflictList{Format: list.Format, Conflicts: []refreshConflict{}}
	for _, c := range list.Conflicts {
		c.Path, c.MinePath, c.RealPath, c.Also = baseline.EscapePath(c.Path), baseline.EscapePath(c.MinePath), baseline.EscapePath(c.RealPath), each(c.Also, baseline.EscapePath)
		saved.Conflicts = append(saved.Conflicts, c)
	}
	data, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return &errs.Error{Op: "noting the conflicts of", Path: rec.Name, Kind: errs.ErrCorrupt, Err: err}
	}
	rel, err := filepath.Rel(rc.cat.Path(rec.Name), rc.baseline.BaseDir(rec.Name, rec.Refreshed))
	if err != nil {
		return err
	}
	return rc.cat.WriteFile(rec.Name, filepath.Join(rel, conflictsFile), append(data, '\n'))
}

// Conflicts lists what a refresh could not merge and nobody has resolved yet. Cost:
// one system call where there is nothing; otherwise that of [Engine.Diff].
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

// unresolved lists the conflicts that are still in the sandbox. One is resolved
// when its text has lost the marks, when it was answered, and when the sandbox has
// at its place what the real tree had.
func (rc *Reconciler) unresolved(ctx context.Context, rec *catalog.Record, changes *compare.Changes) ([]Conflict, error) {
	list, err := rc.readConflicts(rec)
	if err != nil || len(list.Conflicts) == 0 {
		return nil, err
	}
	var open []Conflict
	changed := changedPlacesOf(changes)
	for _, c := range list.Conflicts {
		if err := ctx.Err(); err != nil {
			return nil, &errs.Error{Op: "looking at", Path: rec.Name, Kind: errs.ErrInterrupted, Err: err}
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

func (c *refreshConflict) isOpen(changed changedPlaces) (bool, error) {
	if c.Resolved != "" {
		return false, nil
	}
	part := c.changedIn(changed)
	if part == nil || !c.Marked {
		return part != nil, nil
	}
	rel, err := filepath.Rel(part.Root, c.Path)
	if err != nil {
		return true, nil // it stands until it is answered
	}
	l := baseline.RootedReader{Root: part.New}
	f, err := l.Open(rel)
	if errors.Is(err, errs.ErrNotFound) {
		return false, nil // it was taken away, or became something else
	}
	if err != nil {
		return true, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4*merge.TextMax))
	return err != nil || merge.HasMarkers(text, c.MineName, c.RealName), err
}

// places are all the places that a conflict is about.
func (c *Conflict) places() []string {
	paths := append([]string{c.Path, c.MinePath, c.RealPath}, c.Also...)
	return slices.DeleteFunc(paths, func(path string) bool { return path == "" })
}

// asConflict is a conflict as callers are told of it.
func (c *refreshConflict) asConflict() Conflict {
	return Conflict{
		Path: c.Path, Kind: c.Kind, Why: c.Why, MinePath: c.MinePath, RealPath: c.RealPath, Also: c.Also, InSandbox: true, alone: c.Alone,
	}
}

func (c *refreshConflict) places() []string {
	told := c.asConflict()
	return told.places()
}

// changedIn is the part that has a change at the conflict's places, or nil.
func (c *refreshConflict) changedIn(changed changedPlaces) *compare.Part {
	return changed.at(c.places(), c.Alone)
}

// changedPlaces are the absolute paths at which something is changed, or beneath
// which, and the part that says so.
type changedPlaces map[string]struct {
	part   *compare.Part
	itself bool
}

// at is the part that has a change at one of these places, or, unless they are meant
// alone, beneath it; or nil.
func (all changedPlaces) at(places []string, alone bool) *compare.Part {
	for _, place := range places {
		if told, ok := all[place]; ok && (told.itself || !alone) {
			return told.part
		}
	}
	return nil
}

func changedPlacesOf(c *compare.Changes) changedPlaces {
	changed := changedPlaces{}
	for i := range c.Parts {
		changed.add(&c.Parts[i], c.Parts[i].Changes)
	}
	return changed
}

func (all changedPlaces) add(p *compare.Part, changes []diff.Change) {
	for _, c := range changes {
		if c.TimeOnly() {
			continue
		}
		path := filepath.Join(p.Root, c.Path)
		for at := path; ; at = filepath.Dir(at) {
			told, known := all[at]
			if !known {
				told.part = p
			}
			told.itself = told.itself || at == path
			all[at] = told
			if known || at == "/" {
				break
			}
		}
	}
}

// refuseUnresolved refuses to carry conflicts that are still in the sandbox.
func (rc *Reconciler) refuseUnresolved(ctx context.Context, rec *catalog.Record, changes *compare.Changes, op string, picked func(abs string) bool) error {
	open, err := rc.unresolved(ctx, rec, changes)
	if err != nil {
		return err
	}
	var refused []Conflict
	for _, c := range open {
		if slices.ContainsFunc(c.places(), picked) {
			refused = append(refused, c)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return ConflictsError(op, rec.Name, refused)
}

// each is what a function makes of each element.
func each[A, B any](list []A, of func(A) B) []B {
	made := make([]B, len(list))
	for i, a := range list {
		made[i] = of(a)
	}
	return made
}

// NoteRollback: a sandbox that was rolled back has not carried anything any more that
// it may change again, and what was answered in it may be open again.
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
