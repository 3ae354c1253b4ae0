package diff

import (
	"context"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Rename pairs a deleted and an added change: one node that has moved.
type Rename struct {
	// From is the path of the deleted change, To that of the added one.
	From, To string
	// Exact: the content, or the target of a symbolic link, is the same byte
	// for byte. Mode, owner, times and attributes may differ.
	Exact bool
	// Similarity is how much of the content is the same, in percent: 100 where
	// Exact, at least [SimilarMin] where content alone tells of the rename, and
	// 0 where something else does and the files could not be measured.
	Similarity int
	// Dir: a directory that moved as a whole. The filesystem says so by its
	// inode, or every file that lay beneath From lies at the same place beneath
	// To. What is beneath it is paired, too, each by a Rename of its own.
	Dir bool
}

// Differs is what became of a node on its way, beside its path: content, target,
// mode, owner and attributes. Times are not compared.
func (r *Rename) Differs(old, new *Node) Aspect {
	var what Aspect
	for _, a := range []struct {
		aspect  Aspect
		differs bool
	}{
		{Content, !r.Exact && new.Mode.IsRegular()},
		{Mode, old.Mode != new.Mode},
		{Owner, old.UID != new.UID || old.GID != new.GID},
		{Target, old.Target != new.Target},
		{Device, old.Rdev != new.Rdev},
		{Xattrs, !maps.Equal(old.Xattrs, new.Xattrs)},
	} {
		if a.differs {
			what |= a.aspect
		}
	}
	return what
}

// The bounds of what [Renames] looks for.
const (
	// SimilarMin is the least similarity, in percent, that makes a rename.
	SimilarMin = 50
	// SimilarMax is the size up to which text is measured.
	SimilarMax = 1 << 20
	// SimilarRead bounds the bytes read to measure text, in one call.
	SimilarRead = 64 << 20
	// SimilarPairs bounds the pairs of files that are measured in one call.
	// Where there would be more, only files of the same name are measured.
	SimilarPairs = 1 << 18
)

// Renames pairs the deleted and the added ones of changes, which [Trees] or [At]
// found with the same opt and which it leaves as they are. A path that both
// sides have is no end of a rename. No path is in two pairs. The same trees
// give the same answer, in the order of [Less] by To.
//
// With opt.SameInodes what kept its inode is a rename, whatever became of it.
// Among the rest, files of the same content are, and symbolic links of the same
// target, those first whose paths end alike. Then text of which SimilarMin
// percent are the same: lines, of long lines pieces. Empty files and other nodes
// move only with a directory, because nothing tells one from another.
//
// old may be nil where what lay there cannot be read: then a rename is what kept
// inode, type, size and modification time, and is taken to be exact. A file that
// cannot be read, or that is not what changes say any more, is no rename.
//
// Cost: reads deleted and added files whose sizes agree, without their holes, up to
// the first byte that differs where there are but two; for the rest see the
// bounds above. Memory: a few words a change, and half of SimilarRead where lines are
// of the usual length. Errors: *errs.Error with the path; ErrInterrupted,
// ErrCorrupt (an unreadable disk).
func Renames(ctx context.Context, old, new *os.File, changes []Change, opt Options) ([]Rename, error) {
	defer runtime.KeepAlive(old)
	defer runtime.KeepAlive(new)
	f := newFinder(ctx, changes, opt)
	if !f.any() {
		return nil, nil
	}
	for side, root := range [2]*os.File{old, new} {
		if root == nil {
			continue
		}
		st, err := vfs.Lstat(int(root.Fd()), "")
		if err != nil {
			return nil, fail(".", err)
		}
		f.root[side], f.dev[side] = int(root.Fd()), st.Dev
	}
	if opt.SameInodes {
		f.byInode()
	}
	if old != nil && new != nil {
		f.along()
		if err := f.byContent(); err != nil {
			return nil, err
		}
		f.directories()
		if err := f.bySimilarity(); err != nil {
			return nil, err
		}
		f.directories() // those in which a file was edited, too
	}
	return f.renames()
}

// A finder is one search for renames. Changes are named by their index.
type finder struct {
	ctx     context.Context
	changes []Change
	root    [2]int // -1 where there is none
	dev     [2]uint64
	// partner of a deleted change is the added one, and the other way round; -1
	// where there is none yet.
	partner []int
	// exact: a deleted change whose partner is known to have the same content.
	exact []bool
	// whole: a directory that moved as one.
	whole map[int]bool
	added map[string]int
	read  *worker // compares contents
	texts texts
}

func newFinder(ctx context.Context, changes []Change, opt Options) *finder {
	return &finder{
		ctx: ctx, changes: changes, root: [2]int{-1, -1},
		read: &worker{walk: &walk{ctx: ctx, opt: opt}}, texts: newTexts(),
	}
}

// any makes the finder ready, and reports whether there is anything to pair.
func (f *finder) any() bool {
	deleted := false
	for i, c := range f.changes {
		switch {
		case c.Kind == Deleted:
			deleted = true
		case c.Kind == Added:
			if f.added == nil {
				f.added = map[string]int{}
			}
			f.added[c.Path] = i
		}
	}
	if !deleted || f.added == nil {
		return false
	}
	f.whole = map[int]bool{}
	f.partner = make([]int, len(f.changes))
	f.exact = make([]bool, len(f.changes))
	for i := range f.partner {
		f.partner[i] = -1
	}
	return true
}

// node is the one side that a deleted or added change has.
func (c *Change) node() *Node {
	if c.Kind == Deleted {
		return c.Old
	}
	return c.New
}

// open reports whether a change may still be paired.
func (f *finder) open(i int) bool { return f.partner[i] < 0 && f.changes[i].Kind != Modified }

func (f *finder) join(from, to int) { f.partner[from], f.partner[to] = to, from }

// A bunch is changes that are equal in some way.
type bunch struct{ from, to []int }

// bunches sorts the open changes by a key; those without one are left out. They
// are in the order of their first change, so that the answer repeats.
func bunches[K comparable](f *finder, key func(i int, n *Node) (K, bool)) []*bunch {
	byKey := map[K]*bunch{}
	var all []*bunch
	for i := range f.changes {
		if !f.open(i) {
			continue
		}
		k, ok := key(i, f.changes[i].node())
		if !ok {
			continue
		}
		b := byKey[k]
		if b == nil {
			b = new(bunch)
			byKey[k] = b
			all = append(all, b)
		}
		if f.changes[i].Kind == Deleted {
			b.from = append(b.from, i)
		} else {
			b.to = append(b.to, i)
		}
	}
	return slices.DeleteFunc(all, func(b *bunch) bool { return len(b.from) == 0 || len(b.to) == 0 })
}

// byInode pairs what kept its inode. Nodes of other filesystems within the trees
// have numbers of their own, and are left out.
func (f *finder) byInode() {
	type identity struct {
		ino, mode   uint64
		size, mtime int64
	}
	for _, b := range bunches(f, func(i int, n *Node) (identity, bool) {
		k := identity{ino: n.Ino, mode: uint64(n.Mode.Type())}
		side := older
		if f.changes[i].Kind == Added {
			side = newer
		}
		blind := f.root[older] < 0
		if blind && !n.Mode.IsDir() {
			k.size, k.mtime = n.Size, n.MTime.UnixNano()
		}
		return k, n.Dev == f.dev[side] || side == older && blind
	}) {
		f.match(b)
	}
	for i := range f.partner {
		if f.changes[i].Kind == Deleted && f.partner[i] >= 0 && f.changes[i].Old.Mode.IsDir() {
			f.whole[i] = true
		}
	}
}

// deepest is up to how many last elements of two paths are compared.
const deepest = 16

// match pairs the changes of a bunch: those first whose paths end alike for the
// longest, then in order.
func (f *finder) match(b *bunch) {
	if len(b.from) > 1 || len(b.to) > 1 {
		for n := deepest; n > 0; n-- {
			f.matchEnds(b, n)
		}
	}
	to := b.to
	for _, i := range b.from {
		if !f.open(i) {
			continue
		}
		for len(to) > 0 && !f.open(to[0]) {
			to = to[1:]
		}
		if len(to) == 0 {
			return
		}
		f.join(i, to[0])
	}
}

// matchEnds pairs paths whose last n elements are the same.
func (f *finder) matchEnds(b *bunch, n int) {
	free := map[string][]int{}
	for _, i := range b.to {
		if end, ok := ending(f.changes[i].Path, n); ok && f.open(i) {
			free[end] = append(free[end], i)
		}
	}
	for _, i := range b.from {
		end, ok := ending(f.changes[i].Path, n)
		if same := free[end]; ok && f.open(i) && len(same) > 0 {
			f.join(i, same[0])
			free[end] = same[1:]
		}
	}
}

// ending is the last n elements of a path that has as many.
func ending(path string, n int) (string, bool) {
	at := len(path)
	for range n {
		if at < 0 {
			return "", false
		}
		at = strings.LastIndexByte(path[:at], '/')
	}
	return path[at+1:], true
}

// renames puts the pairs in order and says how alike they are.
func (f *finder) renames() ([]Rename, error) {
	var all []Rename
	for to, from := range f.partner {
		if from < 0 || f.changes[to].Kind != Added {
			continue
		}
		r := Rename{From: f.changes[from].Path, To: f.changes[to].Path, Dir: f.whole[from]}
		var err error
		if r.Exact, r.Similarity, err = f.alike(from, to); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
