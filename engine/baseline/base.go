package baseline

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// MergeBase is the common state from which a merge compares the sandbox and the real tree, in one directory.
// It is the base of the fork, except where the sandbox has promoted since: there it is the promoted state.
type MergeBase struct {
	Root     string // absolute; all paths are relative to it
	Baseline *Baseline
	// Live reconstructs the base from the real tree where the base is live, and is nil for a
	// frozen one. Frozen reads the tree of a frozen base.
	Live   *LiveBase
	Frozen RootedReader
}

// Abs returns the absolute path for path, which is relative to the directory in which the sandbox and the
// real tree are merged.
func (c *MergeBase) Abs(path string) string { return filepath.Join(c.Root, path) }

// At returns the node (type, metadata) of the file that the merge base, the common state of sandbox and real
// tree, has at a path; nil for none. If that is not known, why is the reason, else "". fresh means that n was
// read from the real tree as it is now, not from the baseline.
func (c *MergeBase) At(path string) (n *diff.Node, fresh bool, why string, err error) {
	if k, ok := c.Baseline.Nodes[c.Abs(path)]; ok && (c.Live != nil || k.Promoted) {
		return k.Node, false, k.Unknown, nil
	}
	if c.Baseline.Absent(c.Abs(path)) && c.Live != nil {
		return nil, false, "", nil
	}
	if c.Live == nil {
		n, err := c.Frozen.Node(path)
		return n, false, "", err
	}
	n, why, err = c.Live.At(path)
	return n, true, why, err
}

// Open opens a regular file of the merge base, the common state of sandbox and real tree. The caller closes
// it. Error: errs.ErrNotFound if its bytes are no longer available.
func (c *MergeBase) Open(path string) (*os.File, error) {
	if n, ok := c.Baseline.Nodes[c.Abs(path)]; ok && n.Unknown == "" && (n.Data != "" || n.Promoted || c.Live != nil) {
		if n.Data == "" && c.Live != nil && n.Node != nil {
			return c.openUnchanged(path, n.Node)
		}
		return c.Baseline.open(path, n)
	}
	if c.Live == nil {
		return c.Frozen.Open(path)
	}
	n, why, err := c.Live.At(path)
	switch {
	case err != nil:
		return nil, err
	case why != "" || n == nil:
		return nil, &errs.Error{Op: "opening", Path: path, Kind: errs.ErrNotFound, Err: errors.New("the original is not known")}
	}
	return c.Live.Real.Open(path)
}

// openUnchanged opens the real file at a path as the version of the merge base. That version was not copied
// because the real file has not changed: its inode and change time are those of n. If they are not,
// openUnchanged returns errs.ErrNotFound.
func (c *MergeBase) openUnchanged(path string, n *diff.Node) (*os.File, error) {
	f, err := c.Live.Real.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := vfs.Lstat(int(f.Fd()), "")
	if err == nil && (st.Ino != n.Ino || !st.CTime.Time().Equal(n.CTime)) {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, &errs.Error{Op: "opening", Path: path, Kind: errs.KindOf(err), Err: errors.New("the original was not recorded")}
	}
	return f, nil
}

// Between returns how now, a file of the real or the sandbox's tree, differs from base, its version in the
// merge base; nil for no difference. tree is the tree of now, read for the content. Times of directories are
// ignored: a change in a directory sets them anyway.
func (c *MergeBase) Between(ctx context.Context, path string, base, now *diff.Node, tree *os.File) (*diff.Change, error) {
	switch {
	case base == nil && now == nil:
		return nil, nil
	case base == nil:
		return &diff.Change{Path: path, Kind: diff.Added, New: now}, nil
	case now == nil:
		return &diff.Change{Path: path, Kind: diff.Deleted, Old: base}, nil
	case base.Ino == now.Ino && base.CTime.Equal(now.CTime) && base.Size == now.Size && SameAttributes(base, now):
		return nil, nil
	}
	ch := diff.Change{Path: path, Kind: diff.Modified, Old: base, New: now}
	set := func(what diff.Aspect, differs bool) {
		if differs {
			ch.What |= what
		}
	}
	if base.Mode.Type() != now.Mode.Type() {
		ch.What = diff.Type
		return &ch, nil
	}
	set(diff.Mode, base.Mode != now.Mode)
	set(diff.Owner, base.UID != now.UID || base.GID != now.GID)
	set(diff.Xattrs, !maps.Equal(base.Xattrs, now.Xattrs))
	set(diff.Target, base.Target != now.Target)
	set(diff.Device, base.Rdev != now.Rdev)
	if !base.Mode.IsDir() {
		set(diff.Time, !base.MTime.Equal(now.MTime))
	}
	if base.Mode.IsRegular() {
		same, err := c.same(ctx, path, base, now, tree)
		if err != nil {
			return nil, err
		}
		set(diff.Content, !same)
	}
	if ch.What == 0 {
		return nil, nil
	}
	return &ch, nil
}

// same reports whether the file at path in tree has the same content as in the merge base, the common state
// of sandbox and real tree. It returns false if the original is no longer available.
func (c *MergeBase) same(ctx context.Context, path string, base, now *diff.Node, tree *os.File) (bool, error) {
	if base.Size != now.Size {
		return false, nil
	}
	f, err := c.Open(path)
	if errors.Is(err, errs.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	l := RootedReader{Root: tree}
	g, err := l.Open(path)
	if errors.Is(err, errs.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer g.Close()
	return diff.SameBytes(ctx, f, g)
}

// SortChanges sorts changes by path in the order of [diff.ComparePaths].
func SortChanges(changes []diff.Change) {
	slices.SortStableFunc(changes, func(a, b diff.Change) int { return diff.ComparePaths(a.Path, b.Path) })
}
