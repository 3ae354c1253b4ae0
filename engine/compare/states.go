package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// FindRenames fills in the field Renames of each part: which deleted and added files are one renamed file.
// Cost and errors: those of diff.Renames.
func (c *Changes) FindRenames(ctx context.Context) error {
	for i := range c.Parts {
		p := &c.Parts[i]
		found, err := diff.Renames(ctx, p.Old, p.New, p.Changes, p.Opt)
		if err != nil {
			return err
		}
		p.Renames = found
	}
	return nil
}

// A Ref names an operand of [Comparer.Compare]: a state of a sandbox's trees, or the real trees.
type Ref struct {
	// Sandbox is the name of a sandbox; "" is the real tree in its present state.
	Sandbox string
	// State is a named state of the sandbox; "" is its present state.
	State string
	// Base selects the sandbox's base; State is then ignored.
	Base bool
}

// Compare returns the changes that turn left into right, two states of sandboxes or one and the real tree;
// changes in the workspace and changes outside it are separate Parts. The cost grows with the number of
// changes if the backend lists those of both sides and those between their bases; otherwise Compare walks
// both trees, and reads files of equal size unless an inode number shows that they are the same. Errors:
// errs.ErrNotFound; ErrNotSupported (both are the real tree, or a sandbox may have changed a tree of the host
// of which the other has no fork); those of diff.Trees.
func (cm *Comparer) Compare(ctx context.Context, left, right Ref) (*Changes, error) {
	return Served(ctx, func(ctx context.Context) (*Changes, error) { return cm.compare(ctx, left, right) })
}

func (cm *Comparer) compare(ctx context.Context, left, right Ref) (*Changes, error) {
	sides, err := cm.sides(left, right)
	if err != nil {
		return nil, err
	}
	c := new(Changes)
	for i, t := range sides[0].rec.Trees {
		if hostfs.Vanished(t, sides[0].rec.Workspace) {
			continue
		}
		parts, err := cm.compareAt(ctx, sides, i)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.Parts = append(c.Parts, parts...)
	}
	if err := cm.checkComparable(ctx, sides[1], sides[0]); err != nil {
		c.Close()
		return nil, err
	}
	workspaceFirst(c.Parts)
	return c, nil
}

// A side is one of the two operands of [Comparer.Compare], looked up: a state of a sandbox's trees, or the
// real trees.
type side struct {
	Ref
	// rec is the sandbox's record; for the real tree, the record of the other
	// side.
	rec *catalog.Record
	// ids are the snapshots of the side's trees; nil for the present state.
	ids   []snapshot.ID
	bases []catalog.TreeBase
	right bool
}

// sides looks up both operands of [Comparer.Compare]. A sandbox comes first in the result, even if it is the
// right operand; the field right of a side says which it was.
func (cm *Comparer) sides(left, right Ref) (sides [2]side, err error) {
	if left.Sandbox == "" && right.Sandbox == "" {
		return sides, &errs.Error{Op: "comparing", Kind: errs.ErrNotSupported, Err: errors.New("both sides are the real tree")}
	}
	sides = [2]side{{Ref: left}, {Ref: right, right: true}}
	if left.Sandbox == "" {
		sides[0], sides[1] = sides[1], sides[0]
	}
	for i := range sides {
		s := &sides[i]
		if s.Sandbox == "" {
			s.rec, s.bases = sides[0].rec, sides[0].bases
			continue
		}
		if s.rec, err = cm.cat.Get(s.Sandbox); err != nil {
			return sides, err
		}
		if s.State != "" || s.Base {
			state := s.State
			if s.Base {
				state = ""
			}
			if s.ids, err = sandbox.SnapshotIDs(s.rec, state); err != nil {
				return sides, err
			}
		}
		s.bases = basesAt(s.rec, s.State)
	}
	return sides, nil
}

// basesAt returns the base that each tree of a sandbox has in the named state, or at present if state is "".
func basesAt(rec *catalog.Record, state string) (bases []catalog.TreeBase) {
	if m, ok := rec.Snapshot(state); ok && m.Base != nil {
		return m.Base.Trees
	}
	for _, t := range rec.Trees {
		bases = append(bases, catalog.TreeBase{Base: t.Base, Taken: t.Taken, Frozen: t.Frozen})
	}
	return bases
}

// A treeState is one tree of an operand of [Comparer.Compare]: a snapshot, the present fork, or the real
// tree.
type treeState struct {
	b    snapshot.Backend
	tree catalog.Tree
	base catalog.TreeBase
	// id is a snapshot of the tree; "" is the present state.
	id   snapshot.ID
	real bool
}

// stateOf returns tree number i of s, one of the two operands (sandboxes or the real tree) of a comparison,
// with its backend.
func (cm *Comparer) stateOf(ctx context.Context, s side, i int) (treeState, error) {
	t := treeState{tree: s.rec.Trees[i], base: s.bases[i], real: s.Sandbox == ""}
	if s.ids != nil {
		t.id = s.ids[i]
	}
	var err error
	t.b, err = cm.host.BackendOf(ctx, t.tree)
	return t, err
}

// compareAt compares tree i of the first operand with the tree at the same path of the second, in the
// direction left to right. If the second has no such tree, it returns an error in case the tree was changed.
func (cm *Comparer) compareAt(ctx context.Context, sides [2]side, i int) ([]Part, error) {
	path := sides[0].rec.Trees[i].Path
	at := slices.IndexFunc(sides[1].rec.Trees, func(t catalog.Tree) bool { return t.Path == path })
	first, err := cm.stateOf(ctx, sides[0], i)
	if err != nil {
		return nil, err
	}
	if at < 0 {
		return nil, first.mustBeUnchanged(ctx, sides[0].Sandbox, sides[1].Sandbox)
	}
	second, err := cm.stateOf(ctx, sides[1], at)
	if err != nil {
		return nil, err
	}
	old, new := first, second
	if !sides[1].right {
		old, new = second, first
	}
	parts, err := cm.compareStates(ctx, sides[0].rec.Workspace, old, new)
	if err != nil {
		return nil, err
	}
	return splitAll(parts, sides[0].rec.Workspace)
}

// checkComparable returns ErrNotSupported if the operand s of a comparison has changed a tree of which the
// operand other has no copy, because nothing can then be compared with that tree.
func (cm *Comparer) checkComparable(ctx context.Context, s, other side) error {
	for i, t := range s.rec.Trees {
		if hostfs.Vanished(t, s.rec.Workspace) || slices.ContainsFunc(other.rec.Trees, func(o catalog.Tree) bool { return o.Path == t.Path }) {
			continue
		}
		state, err := cm.stateOf(ctx, s, i)
		if err == nil {
			err = state.mustBeUnchanged(ctx, s.Sandbox, other.Sandbox)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mustBeUnchanged returns ErrNotSupported if the tree of the sandbox called name has changed since its base.
// The other operand of the comparison, the sandbox called other, has no copy of the tree to compare it with.
func (t *treeState) mustBeUnchanged(ctx context.Context, name, other string) error {
	touches, walk, err := t.changed(ctx)
	if err != nil || len(touches) == 0 && !walk {
		return err
	}
	return &errs.Error{
		Op: "comparing", Path: t.tree.Path, Kind: errs.ErrNotSupported,
		Err: fmt.Errorf("%s has a copy of it and %s has none", name, other),
	}
}
