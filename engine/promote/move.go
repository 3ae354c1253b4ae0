package promote

import (
	"context"
	"errors"
	"maps"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// move carries out all steps that move nodes between the real tree and the stages, the private directories
// with the new versions, one after another. It stops at the first real node that is not the expected one.
func (w *work) move(ctx context.Context) error {
	for _, o := range w.ops {
		if o.verb == alter {
			continue
		}
		if err := ctx.Err(); err != nil {
			return at(o.path, err)
		}
		if err := fault.Point(ctx, string(o.verb)); err != nil {
			return at(o.path, err)
		}
		if err := w.moveOne(o); err != nil {
			return at(o.path, err)
		}
	}
	return nil
}

func (w *work) moveOne(o *op) error {
	dir, name, err := w.parent(o.path)
	if err != nil {
		return err
	}
	stage := w.stages[o.stage].dir
	if o.verb != put {
		if err := w.checkTarget(o, dir, name); err != nil {
			return err
		}
	}
	switch o.verb {
	case put:
		err = nodes.MoveIn(stage, o.name, dir, name)
	case swap:
		err = nodes.Exchange(stage, o.name, dir, name)
	case drop:
		err = nodes.MoveOut(dir, name, stage, o.name)
	}
	if nodes.Missing(err) || errors.Is(err, unix.EEXIST) {
		return changedMeanwhile(o.path)
	}
	if err != nil {
		return err
	}
	if o.verb != drop {
		if err := nodes.RestoreMode(dir, name, o.new); err != nil {
			return err
		}
	}
	if o.verb == put {
		return nil
	}
	if o.found.IsDir() || o.found.Shared() { // alter may change the attributes of its other names
		return w.checkDisplaced(o, alterations{})
	}
	return w.checkDisplacedNode(o, stage)
}

// checkDisplacedNode returns an error unless the node that a move took out of the real tree, into the private
// directory stage, is the expected old one. It compares no content; recheck does that later.
func (w *work) checkDisplacedNode(o *op, stage *os.File) error {
	st, err := vfs.Lstat(int(stage.Fd()), o.name)
	if err == nil && !o.old.Is(&st) {
		err = changedMeanwhile(o.path)
	}
	return err
}

// parent returns the directory of the real tree that contains path, open, and the name of path in it. It
// returns an error if another directory, or none, is there now than when the promotion was planned. The cache
// w.real closes the directory, not the caller.
func (w *work) parent(path string) (*os.File, string, error) {
	parent, name := diff.Split(path)
	dir, err := w.p.changed[parent].Open(&w.real)
	if err == nil && dir == nil {
		err = changedMeanwhile(path)
	}
	return dir, name, err
}

// checkTarget returns an error unless the real node name in dir is the one that the promotion's step o
// expects to replace. A change between this check and the move is detected afterwards, but without the change
// time, which the move itself sets.
func (w *work) checkTarget(o *op, dir *os.File, name string) error {
	st, err := vfs.Lstat(int(dir.Fd()), name)
	if nodes.Missing(err) || err == nil && !o.old.Is(&st) {
		return changedMeanwhile(o.path)
	}
	if err == nil && !st.IsDir() && o.found.NLink == 1 && !st.CTime.Time().Equal(o.found.CTime) {
		return changedMeanwhile(o.path)
	}
	return err
}

// checkDisplaced compares an old node, which was moved out of the real tree into a private directory, with
// the expected one, and everything below it. Other programs cannot reach it there except through open files,
// so the result is final. The inodes in altered got new metadata through another name.
func (w *work) checkDisplaced(o *op, altered alterations) error {
	stage := w.stages[o.stage].dir
	node, st, err := nodes.Read(stage, o.name)
	if err != nil {
		return at(o.path, err)
	}
	if altered.explains(o.old, &st) {
		return nil
	}
	if !o.old.Is(&st) || !maps.Equal(nodes.PromotedXattrs(node.Xattrs), nodes.PromotedXattrs(o.found.Xattrs)) {
		return changedMeanwhile(o.path)
	}
	if !st.IsDir() {
		return nil
	}
	return unchanged(stage, o.name, o.path, o.oldTree, func(i nodes.Ident, st *vfs.Stat) bool { return i.Is(st) || altered.explains(i, st) })
}

// unchanged returns an error unless everything below the directory name is as in known, by relative path, as far as
// same decides. path names the directory in errors.
func unchanged(in *os.File, name, path string, known map[string]nodes.Ident, same func(nodes.Ident, *vfs.Stat) bool) error {
	dir, err := nodes.Open(in, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	found := 0
	err = walk(dir, "", func(rel string, in *os.File, name string) error {
		st, err := vfs.Lstat(int(in.Fd()), name)
		if err != nil {
			return err
		}
		if i, ok := known[rel]; !ok || !same(i, &st) {
			return changedMeanwhile(nodes.Join(path, rel))
		}
		found++
		return nil
	})
	if err == nil && found < len(known) {
		err = changedMeanwhile(path)
	}
	return err
}
