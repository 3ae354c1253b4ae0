package merge

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A merger is one merge of trees.
type merger struct {
	ctx     context.Context
	in      Input
	things  *things
	links   *companions
	scratch scratch
	asked   map[string]bool // conflicts that an answer was asked for
	shut    map[string]int  // the places of conflicts that nobody has answered, by their number
	classes map[*thing][]*thing
	result  *Result
}

func newMerger(ctx context.Context, in Input) (*merger, error) {
	m := &merger{ctx: ctx, in: in, asked: map[string]bool{}, shut: map[string]int{}, result: &Result{Built: map[string]bool{}, From: map[string]string{}}}
	m.scratch.dir = in.Scratch
	renames, err := m.renames()
	if err != nil {
		return nil, err
	}
	m.things = gather([3][]diff.Change{mine: in.Mine, real: in.Real}, renames)
	if err := m.unknown(); err != nil {
		return nil, err
	}
	m.links = m.things.companions()
	return m, nil
}

// renames finds what each side has renamed.
func (m *merger) renames() (all [3][]diff.Rename, err error) {
	if all[mine], err = diff.Renames(m.ctx, m.in.BaseTree, m.in.MineTree, m.in.Mine, m.in.MineOptions); err != nil {
		return all, fail(".", err)
	}
	// What real made at such a path is not what mine renamed to there.
	all[mine] = slices.DeleteFunc(all[mine], func(r diff.Rename) bool { _, unknown := m.in.Unknown[r.To]; return unknown })
	all[real], err = diff.Renames(m.ctx, m.in.BaseTree, m.in.RealTree, m.in.Real, m.in.RealOptions)
	return all, fail(".", err)
}

// unknown looks at what real has where it moved on from a base that is not known.
func (m *merger) unknown() error {
	if len(m.in.Unknown) == 0 {
		return nil
	}
	touches := func(yield func(snapshot.Touch, error) bool) {
		for path := range m.in.Unknown {
			if !yield(snapshot.Touch{Path: path}, nil) {
				return
			}
		}
	}
	changes, err := diff.At(m.ctx, m.in.MineTree, m.in.RealTree, iter.Seq2[snapshot.Touch, error](touches), diff.Options{OverlayViews: true})
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
		t := m.things.at[base][path]
		if t == nil {
			t = m.things.at[mine][path]
		}
		if t == nil {
			continue
		}
		if c := differs[path]; c == nil {
			t.on[real] = t.on[mine]
		} else {
			t.on[real] = state{path: path, node: c.New, what: ^diff.Aspect(0), told: true}
		}
		if t.on[real].node == nil {
			t.on[real].path = ""
		}
	}
	m.things.index()
	return nil
}

// run decides what becomes of each thing.
func (m *merger) run() error {
	for _, step := range []func() error{m.unsure, m.removed, m.each, m.fit} {
		if err := step(); err != nil {
			return err
		}
	}
	return m.answer()
}

// each decides what no conflict has decided yet, directories before what lies in
// them.
func (m *merger) each() error {
	for _, t := range m.things.all {
		if err := m.ctx.Err(); err != nil {
			return fail(t.first(), err)
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

// decide sets the end of a thing, or raises a conflict.
func (m *merger) decide(t *thing) error {
	switch {
	case !t.has(mine) && !t.has(real):
		return nil
	case t.has(mine) && t.has(real):
		return m.both(t)
	case t.has(base):
		return m.deleted(t)
	}
	side := real
	if t.has(mine) {
		side = mine
	}
	t.end = t.as(side)
	t.end.path, _ = m.things.spot(t)
	return m.carry(t)
}

// deleted decides about a thing that one side has deleted.
func (m *merger) deleted(t *thing) error {
	side := mine
	if t.has(mine) {
		side = real
	}
	left := other(side)
	if m.things.went(left, t) {
		return m.raise(t, RenameDelete, says(left, "renamed it from "+quote(t.on[base].path))+", "+says(side, "deleted it"))
	}
	if t.touched(left) {
		return m.raise(t, lostBy(side), says(left, "changed "+aspects(t.on[left].what))+", "+says(side, "deleted it"))
	}
	return nil
}

// lostBy is the kind of conflict where a side deleted what the other changed.
func lostBy(side int) Kind {
	if side == mine {
		return DeleteChange
	}
	return ChangeDelete
}

// unsure raises the conflicts of what has no base.
func (m *merger) unsure() error {
	for _, t := range m.things.all {
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
				why = "what it was before is not known any more"
			}
			if err := m.raise(t, NoBase, "the sandbox and the real tree both changed it: "+why); err != nil {
				return err
			}
			continue
		}
		t.end, t.done = t.as(real), true
	}
	return nil
}

// removed raises the conflicts of directories that one side has removed, or has
// made something else of, while the other changed something in them.
func (m *merger) removed() error {
	for _, t := range m.things.all {
		for _, side := range []int{mine, real} {
			keeps := other(side)
			if t.done || !t.isDir(base) || t.isDir(side) || !t.isDir(keeps) || m.things.went(keeps, t) {
				continue
			}
			found := m.kept(t, side)
			if len(found) == 0 {
				continue
			}
			kind, did := lostBy(side), "deleted it"
			if t.has(side) {
				kind, did = Directory, "made it a "+diff.TypeName(t.on[side].node.Mode)
			}
			if err := m.raise(t, kind, says(side, did)+", "+says(keeps, "changed "+some(found)+" in it")); err != nil {
				return err
			}
		}
	}
	return nil
}

// kept are the paths, in a directory that a side has removed, of what the other has
// put there, or changed.
func (m *merger) kept(dir *thing, side int) (paths []string) {
	keeps := other(side)
	m.things.under(keeps, dir.on[keeps].path, func(t *thing) {
		b := t.on[base]
		switch {
		case t == dir:
		case b.node == nil,
			!t.has(side) && t.touched(keeps),
			m.things.went(keeps, t) && !beneath(b.path, dir.on[base].path):
			paths = append(paths, t.on[keeps].path)
		}
	})
	return paths
}

// fail gives an error its path and kind, once.
func fail(path string, err error) error {
	var done *snapshot.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	kind := snapshot.KindOf(err)
	if kind == nil {
		kind = snapshot.ErrCorrupt
	}
	return &snapshot.Error{Op: doing, Path: path, Kind: kind, Err: err}
}
