// Package merge lays what a sandbox has changed over what the real tree has
// become.
//
// There are three trees: base, from which both sides started; mine, which is the
// sandbox; and real. [Trees] answers with the changes that turn real into the
// merged tree, and with a [Conflict] for every place where there is no single
// answer. Nothing is guessed: where both sides changed the same thing to
// something different, it is a conflict, named from both sides.
//
// The package knows no git, and writes nowhere but in the scratch directory it
// is given.
//
// What changes do not tell is not merged: where one of several names of a file (hard
// links) is renamed and nothing else happens to the file, no change speaks of the
// other names, and the renamed one becomes a file of its own.
package merge

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
)

// An Input is what is merged. Both lists of changes are in the order of package
// diff and start from the same base.
type Input struct {
	// Mine and Real are base → mine and base → real.
	Mine, Real []diff.Change
	// MineTree and RealTree are the roots of both trees, open for reading.
	MineTree, RealTree *os.File
	// BaseTree is the root of the base, where it can be read: renames are found by
	// it. Without it only what kept its inode is a rename. May be nil.
	BaseTree *os.File
	// MineOptions and RealOptions are those that Mine and Real were found with.
	MineOptions, RealOptions diff.Options
	// OpenBase opens a regular file of the base for reading. Where the base's
	// bytes are not there any more: snapshot.ErrNotFound, and what needs them is a
	// conflict.
	OpenBase func(path string) (*os.File, error)
	// Unknown holds the paths of Mine at which real has moved on from a base that
	// is not known any more, and why: unless both sides are the same there, each is
	// a conflict of kind NoBase. Real says nothing of them. May be nil.
	Unknown map[string]string
	// Choose answers conflicts by path; nil, or Ask, leaves them. See [Choice].
	Choose func(c Conflict) Choice
	// Scratch is an empty private directory. What neither side has is built in it,
	// under its path.
	Scratch *os.File
	// MineName and RealName name the sides in conflict marks.
	MineName, RealName string
}

// A Choice answers a conflict.
type Choice int

// The answers to a conflict.
const (
	// Ask leaves it a conflict.
	Ask Choice = iota
	// Mine takes what the sandbox has, Theirs what the real tree has, for the
	// whole path.
	Mine
	Theirs
	// Built takes what the caller has put at the path in Scratch (a merge tool's
	// result).
	Built
)

// A Result is the merged tree, as what it changes in real.
type Result struct {
	// Changes turn real into the merged tree, in the order of package diff. Old
	// is what real holds. Of a path in conflict there is no change, nor of what
	// lies beneath it; where the conflict is about the mode, owner or attributes of
	// a directory, it is about the directory alone. What a path in conflict needs to
	// stay, as the directory that it lies in, stays.
	Changes []diff.Change
	// Built are the paths of Changes whose content lies in Input.Scratch; that
	// of all others lies in Input.MineTree, under the path that From names, or
	// under the same.
	Built map[string]bool
	From  map[string]string
	// Conflicts are in the order of their paths.
	Conflicts []Conflict
}

// Trees merges. What is renamed on one side and changed on the other is both; what
// one side puts into a directory that the other has renamed goes along. Each
// aspect of a node is merged by itself, and each extended attribute.
//
// Of two times none is a conflict: a file has that of the side whose content it has,
// and one that was merged of both is a nanosecond younger than the younger, so that
// nothing takes it for either, and merging again gives the same.
//
// The trees must hold still meanwhile. Cost: reads the three versions of files that
// both sides have changed, copies what one side has renamed and the real tree
// changed, and what [diff.Renames] reads; memory for three texts of TextMax.
// Errors: *snapshot.Error of a file that cannot be read, or of Scratch; ErrBusy
// names a file that is not what the changes say any more; ErrInterrupted. Scratch
// may hold files then, and holds only what Built names otherwise.
func Trees(ctx context.Context, in Input) (*Result, error) {
	m, err := newMerger(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.run(), m.scratch.close()); err != nil {
		return nil, err
	}
	return m.result, nil
}

const doing = "merging"
