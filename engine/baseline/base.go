package baseline

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A MergeBase is what both sides of a merge started from: the base of a part of a
// sandbox, but for what was carried since, which counts as the base of what came
// after it.
type MergeBase struct {
	Root string // what paths are relative to
	Kept *Baseline
	// Live finds out what a live base held; nil where it is frozen, and frozen
	// is its tree.
	Live   *LiveBase
	Frozen RootedReader
}

func (c *MergeBase) Abs(path string) string { return filepath.Join(c.Root, path) }

// At says what the base has at a path, nil for nothing; or why that is not known.
// fresh: it is not kept, and what a comparison with the real tree found holds.
func (c *MergeBase) At(path string) (n *diff.Node, fresh bool, why string, err error) {
	if k, ok := c.Kept.Nodes[c.Abs(path)]; ok && (c.Live != nil || k.Carried) {
		return k.Node, false, k.Unknown, nil
	}
	if c.Kept.Absent(c.Abs(path)) && c.Live != nil {
		return nil, false, "", nil
	}
	if c.Live == nil {
		n, err := c.Frozen.Node(path)
		return n, false, "", err
	}
	n, why, err = c.Live.At(path)
	return n, true, why, err
}

// Open opens a regular file of the base: ErrNotFound where its bytes are not
// there any more.
func (c *MergeBase) Open(path string) (*os.File, error) {
	if n, ok := c.Kept.Nodes[c.Abs(path)]; ok && n.Unknown == "" && (n.Data != "" || n.Carried || c.Live != nil) {
		if n.Data == "" && c.Live != nil && n.Node != nil {
			return c.unmoved(path, n.Node)
		}
		return c.Kept.open(path, n)
	}
	if c.Live == nil {
		return c.Frozen.Open(path)
	}
	n, why, err := c.Live.At(path)
	switch {
	case err != nil:
		return nil, err
	case why != "" || n == nil:
		return nil, &errs.Error{Op: "opening", Path: path, Kind: errs.ErrNotFound, Err: errors.New("what the base held is not known")}
	}
	return c.Live.Real.Open(path)
}

// unmoved opens a file whose bytes are not kept, as long as it is still there.
func (c *MergeBase) unmoved(path string, n *diff.Node) (*os.File, error) {
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
		return nil, &errs.Error{Op: "opening", Path: path, Kind: errs.KindOf(err), Err: errors.New("what the base held is not kept")}
	}
	return f, nil
}

// Between says how one side differs from the base, nil for not at all. tree is
// that side's; times of directories do not count, as they only repeat what
// happened in them.
func (c *MergeBase) Between(path string, base, now *diff.Node, tree *os.File) (*diff.Change, error) {
	switch {
	case base == nil && now == nil:
		return nil, nil
	case base == nil:
		return &diff.Change{Path: path, Kind: diff.Added, New: now}, nil
	case now == nil:
		return &diff.Change{Path: path, Kind: diff.Deleted, Old: base}, nil
	case base.Ino == now.Ino && base.CTime.Equal(now.CTime) && base.Size == now.Size && base.Mode == now.Mode:
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
		same, err := c.same(path, base, now, tree)
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

// same reports whether a file has the bytes that the base has. Where those are
// not there any more, it is taken to differ.
func (c *MergeBase) same(path string, base, now *diff.Node, tree *os.File) (bool, error) {
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
	return sameBytes(f, g)
}

func sameBytes(f, g io.Reader) (bool, error) {
	const size = 128 << 10
	x, y := make([]byte, size), make([]byte, size)
	for {
		n, err1 := io.ReadFull(f, x)
		m, err2 := io.ReadFull(g, y)
		ended := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
		switch {
		case !bytes.Equal(x[:n], y[:m]):
			return false, nil
		case ended(err1) && ended(err2):
			return true, nil
		case err1 != nil || err2 != nil:
			return false, errors.Join(err1, err2)
		}
	}
}

// InOrder sorts changes as package diff does.
func InOrder(changes []diff.Change) {
	slices.SortStableFunc(changes, func(a, b diff.Change) int {
		switch {
		case diff.Less(a.Path, b.Path):
			return -1
		case diff.Less(b.Path, a.Path):
			return 1
		}
		return 0
	})
}
