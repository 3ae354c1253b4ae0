package merge

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A merger holds the state of one call of [Trees]: its input, an entry for each changed file, and the result
// so far.
type merger struct {
	ctx     context.Context
	in      Input
	entries *entries
	links   *linkGroups
	scratch scratch
	asked   map[string]bool // conflicts that Choose has seen
	blocked map[string]int  // paths of open conflicts, with the conflict's index
	classes map[*entry][]*entry
	ends    map[string]string // see otherEnds; nil until the first conflict
	over    map[string]string // see overwritten; nil until the first conflict
	result  *Result
}

func newMerger(ctx context.Context, in Input) (*merger, error) {
	m := &merger{ctx: ctx, in: in, asked: map[string]bool{}, blocked: map[string]int{}, result: &Result{Built: map[string]bool{}, From: map[string]string{}}}
	m.scratch.dir = in.Scratch
	renames, err := m.renames()
	if err != nil {
		return nil, err
	}
	m.entries = pair([3][]diff.Change{mine: in.Mine, real: in.Real}, renames)
	if err := m.readUnknown(); err != nil {
		return nil, err
	}
	m.links = m.entries.linkGroups()
	return m, nil
}

// renames detects which files the sandbox and the real tree have renamed since the base, and returns the renames of
// each side, by the index mine (sandbox) or real.
func (m *merger) renames() (all [3][]diff.Rename, err error) {
	if all[mine], err = diff.Renames(m.ctx, m.in.BaseTree, m.in.MineTree, m.in.Mine, m.in.MineOptions); err != nil {
		return all, fail(".", err)
	}
	// An unknown path of real is no target of a rename by mine.
	all[mine] = slices.DeleteFunc(all[mine], func(r diff.Rename) bool { _, unknown := m.in.Unknown[r.To]; return unknown })
	all[real], err = diff.Renames(m.ctx, m.in.BaseTree, m.in.RealTree, m.in.Real, m.in.RealOptions)
	return all, fail(".", err)
}

// readUnknown compares the sandbox with the real tree at the paths whose original is unknown. Where both have the
// same file there, it stores that in m.entries, so that the merge reports no conflict; else how they differ.
func (m *merger) readUnknown() error {
	if len(m.in.Unknown) == 0 {
		return nil
	}
	var touches []snapshot.Candidate
	for path := range m.in.Unknown {
		touches = append(touches, snapshot.Candidate{Path: path})
	}
	changes, err := diff.At(m.ctx, m.in.MineTree, m.in.RealTree, touches, diff.Options{OverlayViews: true})
	if err != nil {
		return fail(".", err)
	}
	differs := map[string]*diff.Change{}
	for i, c := range changes {
		if _, asked := m.in.Unknown[c.Path]; asked && (c.Kind != diff.Modified || c.What&^(diff.Time|diff.Links) != 0) {
			differs[c.Path] = &changes[i]
		}
	}
	for path := range m.in.Unknown {
		t := m.entries.at[base][path]
		if t == nil {
			t = m.entries.at[mine][path]
		}
		if t == nil {
			continue
		}
		if c := differs[path]; c == nil {
			t.on[real] = t.on[mine]
		} else {
			t.on[real] = state{path: path, node: c.New, what: ^diff.Aspect(0), listed: true}
		}
		if t.on[real].node == nil {
			t.on[real].path = ""
		}
	}
	m.entries.index()
	return nil
}

// run decides for each changed file how it is in the merged tree, and collects the result.
func (m *merger) run() error {
	for _, step := range []func() error{m.lostDirs, m.splitLinks, m.unknownBases, m.removedDirs, m.decideAll, m.makeConsistent} {
		if err := step(); err != nil {
			return err
		}
	}
	return m.collect()
}

// decideAll decides how each changed file that no conflict covers yet is in the merged tree, directories
// before the files in them.
func (m *merger) decideAll() error {
	for _, t := range m.entries.all {
		if err := m.interrupted(t); err != nil {
			return err
		}
		if t.done {
			continue
		}
		if err := m.decide(t); err != nil {
			return err
		}
		t.done = true
	}
	return nil
}

// interrupted returns an ErrInterrupted, at the path of the file t, if the context of the merge has ended.
// Every loop over all changed files calls it.
func (m *merger) interrupted(t *entry) error {
	if err := m.ctx.Err(); err != nil {
		return fail(t.sortPath(), err)
	}
	return nil
}

// decide sets the outcome of a changed file, that is, how it is in the merged tree, or reports a conflict.
func (m *merger) decide(t *entry) error {
	switch {
	case !t.has(mine) && !t.has(real):
		return nil
	case t.has(mine) && t.has(real):
		return m.mergeBoth(t)
	case t.has(base):
		return m.deleted(t)
	}
	side := real
	if t.has(mine) {
		side = mine
	}
	t.outcome = t.asOn(side)
	t.outcome.path, _ = m.entries.destination(t)
	return m.copyMoved(t)
}

// deleted decides on a file that one side, sandbox or real tree, deleted: it stays deleted, or is a conflict
// if the other side renamed or changed it.
func (m *merger) deleted(t *entry) error {
	side := mine
	if t.has(mine) {
		side = real
	}
	left := other(side)
	if m.entries.movedItself(left, t) {
		return m.report(t, RenameDelete, sideDid(left, "renamed it from "+quote(t.on[base].path))+", "+sideDid(side, "deleted it"))
	}
	if t.changed(left) {
		return m.report(t, lostBy(side), sideDid(left, "changed "+aspectWords(t.on[left].what))+", "+sideDid(side, "deleted it"))
	}
	return nil
}

// lostBy returns the kind of conflict for a file that this side (sandbox or real tree) deleted and the other
// changed.
func lostBy(side int) Kind {
	if side == mine {
		return DeleteChange
	}
	return ChangeDelete
}

// unknownBases reports a conflict for each path whose original is unknown and at which sandbox and real tree
// differ.
func (m *merger) unknownBases() error {
	for _, t := range m.entries.all {
		if err := m.interrupted(t); err != nil {
			return err
		}
		path := t.on[mine].path
		why, ok := m.in.Unknown[path]
		if !ok {
			path = t.on[base].path
			if why, ok = m.in.Unknown[path]; !ok {
				continue
			}
		}
		if t.done {
			continue
		}
		if s := t.on[real]; s.what == ^diff.Aspect(0) {
			if why == "" {
				why = "changed on both sides, and the original is no longer available"
			}
			if err := m.report(t, NoBase, why); err != nil {
				return err
			}
			continue
		}
		t.outcome, t.done = t.asOn(real), true
	}
	return nil
}

// lostDirs reports a conflict for each directory in Input.Lost, which the sandbox renamed and the real tree
// lost. It covers all changed entries in the directory.
func (m *merger) lostDirs() error {
	for _, path := range slices.SortedFunc(maps.Keys(m.in.Lost), diff.ComparePaths) {
		var top *entry
		m.entries.under(mine, path, func(t *entry) {
			if top == nil && !t.done {
				top = t
			}
		})
		if top == nil {
			continue
		}
		c := Conflict{Path: path, Kind: Lost, Why: m.in.Lost[path]}
		if t := m.entries.at[mine][path]; t != nil {
			c.Base, c.Mine, c.Real = t.on[base].node, t.on[mine].node, t.on[real].node
		}
		if err := m.resolve(top, c); err != nil {
			return err
		}
	}
	return nil
}

// splitLinks reports a conflict for each file in Input.Split, which the sandbox changed or renamed under only one
// of several hard links.
func (m *merger) splitLinks() error {
	for _, path := range slices.SortedFunc(maps.Keys(m.in.Split), diff.ComparePaths) {
		if t := m.entries.at[mine][path]; t != nil && !t.done {
			if err := m.report(t, Links, m.in.Split[path]); err != nil {
				return err
			}
		}
	}
	return nil
}

// removedDirs reports a conflict for each directory that the sandbox or the real tree removed or replaced
// while the other changed something inside.
func (m *merger) removedDirs() error {
	for _, t := range m.entries.all {
		if err := m.interrupted(t); err != nil {
			return err
		}
		for _, side := range []int{mine, real} {
			keeps := other(side)
			if t.done || !t.isDir(base) || t.isDir(side) || !t.isDir(keeps) || m.entries.movedItself(keeps, t) {
				continue
			}
			found := m.survivors(t, side)
			if len(found) == 0 {
				continue
			}
			kind, did := lostBy(side), "deleted it"
			if t.has(side) {
				kind, did = Directory, "made it a "+diff.TypeName(t.on[side].node.Mode)
			}
			if err := m.report(t, kind, sideDid(side, did)+", "+sideDid(keeps, "changed "+abbreviate(found)+" in it")); err != nil {
				return err
			}
		}
	}
	return nil
}

// survivors returns the paths in a directory that one side (sandbox or real tree) removed and into which the
// other added, changed or moved something. side is the one that removed it.
func (m *merger) survivors(dir *entry, side int) (paths []string) {
	keeps := other(side)
	m.entries.under(keeps, dir.on[keeps].path, func(t *entry) {
		b := t.on[base]
		switch {
		case t == dir:
		case b.node == nil,
			!t.has(side) && t.changed(keeps),
			m.entries.movedItself(keeps, t) && !diff.Inside(b.path, dir.on[base].path):
			paths = append(paths, t.on[keeps].path)
		}
	})
	return paths
}

// fail returns err as an errs.Error of the merge at path, unless it is one already; nil for nil.
func fail(path string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	kind := errs.KindOf(err)
	if kind == nil {
		kind = errs.ErrCorrupt
	}
	return &errs.Error{Op: op, Path: path, Kind: kind, Err: err}
}
