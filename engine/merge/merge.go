package merge

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
)

// An Input describes a three-way merge of the sandbox's changes (mine) and the real tree's, for [Trees]. Both
// lists of changes start from the same base and are in the order of package diff.
type Input struct {
	// Mine and Real are the changes from base to mine and from base to real.
	Mine, Real []diff.Change
	// MineTree and RealTree are the roots of both trees, open for reading.
	MineTree, RealTree *os.File
	// BaseTree is the root of the base, used to detect renames, or nil. Without it only
	// a node with an unchanged inode counts as renamed.
	BaseTree *os.File
	// OldTree is the root of the tree that Mine was compared with, or nil for BaseTree. It
	// shows which conflicts lie at one end of a move. So does RealTree, for files whose
	// version in the base is not in OldTree.
	OldTree *os.File
	// MineOptions and RealOptions are the options that produced Mine and Real.
	MineOptions, RealOptions diff.Options
	// OpenBase opens a regular file of the base for reading. It returns
	// errs.ErrNotFound where the original is no longer available; a merge that needs
	// it reports a conflict.
	OpenBase func(path string) (*os.File, error)
	// Unknown maps paths of Mine that real changed too, from an unknown base, to the
	// reason. Each is a conflict of kind NoBase unless both sides are equal there. Real
	// does not list these paths. May be nil.
	Unknown map[string]string
	// Lost maps directories that mine renamed, and whose entries are lost, to the reason. Each
	// is a conflict of kind Lost, with all that mine changed in it. May be nil.
	Lost map[string]string
	// Split maps files that mine changed under one of several hard links to the reason why the
	// others cannot stay as they are. Each is a conflict of kind Links. May be nil.
	Split map[string]string
	// Choose answers conflicts. Nil, or Ask, leaves a conflict open. See [Choice].
	Choose func(c Conflict) Choice
	// Scratch is the path of an empty private directory, which the merge makes if it is missing and
	// needed: there it creates the content that neither side has, each file under its path.
	Scratch string
	// MineName and RealName label the sides in conflict markers.
	MineName, RealName string
}

// A Choice is the answer to a conflict of a merge: whose version to take. Input.Choose returns it.
type Choice int

// The answers that Input.Choose can give to a conflict: which version of the files the merged tree has.
const (
	// Ask leaves the conflict open, for the user to answer later: the result of the merge lists it.
	Ask Choice = iota
	// Mine takes, as the answer to a conflict, the sandbox's version of everything that the conflict covers,
	// Theirs the real tree's version.
	Mine
	Theirs
	// Built takes, as the answer to a conflict, the file that Choose has written to the conflict's path in
	// Scratch, such as the result of a merge tool.
	Built
)

// A Result is the result of [Trees]: how the merged tree differs from the real tree, and the conflicts.
type Result struct {
	// Changes turn real into the merged tree, in the order of package diff; Old is the
	// node in real. Paths in conflict have no change, nor does anything below them, except
	// below a directory whose mode, owner or attributes are in conflict. Parents of a path
	// in conflict stay.
	Changes []diff.Change
	// Built holds the paths of Changes whose content is in Input.Scratch. Other content
	// is in Input.MineTree, at the path that From gives or else at the same path.
	Built map[string]bool
	From  map[string]string
	// Conflicts are sorted by path.
	Conflicts []Conflict
}

// Trees merges the changes of the sandbox and of the real tree since the base. A file that one side renames
// and the other changes gets both, and a file that one side adds to a directory moves with a rename of that
// directory on the other side. Each aspect of a node and each extended attribute is merged separately.
//
// Times never conflict: a file has the time of the side that its content comes from. A file merged from both
// is 1 ns younger than the younger one, so it differs from both, and a repeated merge gives the same time.
//
// The trees must not change meanwhile. Cost: reads three versions of each file that both sides changed,
// copies files that one side renamed and real changed, and reads the same as [diff.Renames]. Memory: three
// texts of TextMax. Errors: *errs.Error for a file that cannot be read, or for Scratch; ErrBusy for a file
// that no longer matches the changes; ErrInterrupted. Scratch may then contain leftovers; after success it
// contains only the paths in Built.
func Trees(ctx context.Context, in Input) (*Result, error) {
	if in.unopposed() {
		r := &Result{Changes: slices.Clone(in.Mine), Built: map[string]bool{}, From: map[string]string{}}
		return r, fail(".", ctx.Err())
	}
	m, err := newMerger(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.run(), m.scratch.close()); err != nil {
		return nil, err
	}
	return m.result, nil
}

// unopposed reports whether the real tree is as the base, so that the result is the sandbox's changes, and nothing has
// to be paired, read or decided. It is false for changed hard links, of which others may not be among the changes, and
// for changed attributes, of which the real tree's stay where the system maintains them.
func (in *Input) unopposed() bool {
	if len(in.Real)+len(in.Unknown)+len(in.Lost)+len(in.Split) > 0 {
		return false
	}
	return !slices.ContainsFunc(in.Mine, func(c diff.Change) bool {
		return group(c.Path, c.Old)+group(c.Path, c.New) != "" || c.What&diff.Xattrs != 0
	})
}

const op = "merging"
