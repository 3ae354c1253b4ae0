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

// A Rename says that a deleted and an added path of two compared trees are one file or directory that moved.
type Rename struct {
	// From is the path of the deleted change, To that of the added one.
	From, To string
	// Exact is set if the content, or the target of a symbolic link, is equal byte for byte.
	// Mode, owner, times and attributes may differ.
	Exact bool
	// Similarity is the equal part of the content in percent: 100 if Exact, at least
	// [SimilarMin] if only the content shows the rename, and 0 if something else does and
	// the files could not be compared.
	Similarity int
	// Dir is set for a directory that moved as a whole: it has the same inode, or every file
	// below From is at the same path below To. The nodes below it have Renames of their own.
	Dir bool
	// Entries is the number of nodes below a directory that moved along, and have neither
	// changes nor Renames of their own; see [Options.Fold].
	Entries int
}

// Paths returns how many paths the renames move, with the unlisted entries of directories.
func Paths(renames []Rename) int {
	n := len(renames)
	for _, r := range renames {
		n += r.Entries
	}
	return n
}

// Differs returns the aspects that changed along with the rename, except for the times: content, target,
// mode, owner and attributes. old and new are the nodes.
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

// Bounds that limit the cost of [Renames], which finds renamed files by their content.
const (
	// SimilarMin is how much of a text, in percent, must be equal for a deleted and an added file to count as
	// one renamed file.
	SimilarMin = 50
	// SimilarMax is the maximum size in bytes of a text that is compared with others, to find out whether it is a
	// renamed file. A larger one counts as renamed only if its content is unchanged.
	SimilarMax = 1 << 20
	// SimilarRead is the maximum number of bytes that one call of Renames, which looks for renamed files, reads to
	// compare texts. Texts beyond it count as deleted and added, unless their content is unchanged.
	SimilarRead = 64 << 20
	// SimilarPairs is the maximum number of pairs of texts that one call of Renames, which looks for renamed
	// files, compares. Beyond it, only files of the same name are compared.
	SimilarPairs = 1 << 18
)

// Renames pairs deleted and added changes, which [Trees] or [At] found with the same opt, and
// does not modify them. A path that both sides have is not part of a rename, and no path is
// in two pairs. The result is deterministic, in the order of [ComparePaths] by To.
//
// With opt.SameInodes, a node with the same inode is a rename, whatever else changed. Among
// the others, files of equal content are, and symbolic links of equal target; pairs whose
// paths have the longest common end come first. Then texts of which at least SimilarMin percent
// are equal, by lines, or by pieces of long lines. Empty files and other nodes only move with
// a directory, because they are not distinguishable.
//
// old may be nil if it is not readable: then a node with the same inode, type, size and
// modification time is a rename, assumed to be exact. A file that cannot be read, or that no
// longer matches its change, is none.
//
// Cost: reads deleted and added files of equal size, without holes, and of only two files up
// to the first difference; for texts see the bounds above. Memory: a few words for each change,
// and half of SimilarRead for lines of usual length. Errors: *errs.Error with the path;
// ErrInterrupted, ErrCorrupt (an unreadable disk).
func Renames(ctx context.Context, old, new *os.File, changes []Change, opt Options) ([]Rename, error) {
	defer runtime.KeepAlive(old)
	defer runtime.KeepAlive(new)
	f := newFinder(ctx, changes, opt)
	if !f.prepare() {
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
	f.byFold()
	if opt.SameInodes {
		f.byInode()
	}
	if old != nil && new != nil {
		f.byParent()
		if err := f.byContent(); err != nil {
			return nil, err
		}
		f.directories()
		if err := f.bySimilarity(); err != nil {
			return nil, err
		}
		f.directories() // those with an edited file, too
	}
	return f.renames()
}

// A finder is one search for renames among a list of changes, by [Renames]. It refers to a change by its
// index in the list.
type finder struct {
	ctx     context.Context
	changes []Change
	root    [2]int // -1 for none
	dev     [2]uint64
	// partner maps a deleted change to the added one and vice versa; -1 for none yet.
	partner []int
	// exact[i] is set for a deleted change i whose partner has equal content.
	exact []bool
	// whole holds the directories that moved as a whole, by index of their change.
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

// prepare fills the tables of the search for renames. It returns false if there are no deleted or no added
// paths to pair.
func (f *finder) prepare() bool {
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

// node returns the only node (file metadata) of a change that adds or deletes a path.
func (c *Change) node() *Node {
	if c.Kind == Deleted {
		return c.Old
	}
	return c.New
}

// unpaired reports whether change number i adds or deletes a path and is not yet one half of a found rename.
func (f *finder) unpaired(i int) bool { return f.partner[i] < 0 && f.changes[i].Kind != Modified }

func (f *finder) pair(from, to int) { f.partner[from], f.partner[to] = to, from }

// A matchSet is a set of changes that may be renames of each other, since their files agree in some key, such
// as the size. from are the deleted files and to the added ones, by their numbers in the list of changes.
type matchSet struct{ from, to []int }

// matchSets groups deleted and added changes that may be renames by a key, such as the size of the file. It
// leaves out changes without a key, and those that are part of a rename already. The groups are in the order
// of their first change, so that the result is deterministic.
func matchSets[K comparable](f *finder, key func(i int, n *Node) (K, bool)) []*matchSet {
	byKey := map[K]*matchSet{}
	var all []*matchSet
	for i := range f.changes {
		if !f.unpaired(i) {
			continue
		}
		k, ok := key(i, f.changes[i].node())
		if !ok {
			continue
		}
		b := byKey[k]
		if b == nil {
			b = new(matchSet)
			byKey[k] = b
			all = append(all, b)
		}
		if f.changes[i].Kind == Deleted {
			b.from = append(b.from, i)
		} else {
			b.to = append(b.to, i)
		}
	}
	return slices.DeleteFunc(all, func(b *matchSet) bool { return len(b.from) == 0 || len(b.to) == 0 })
}

// byFold pairs the two changes of each renamed directory of which the entries are not listed.
func (f *finder) byFold() {
	for to := range f.changes {
		moved := f.changes[to].Moved
		if moved == nil {
			continue
		}
		from, ok := slices.BinarySearchFunc(f.changes, moved.From, func(c Change, path string) int { return ComparePaths(c.Path, path) })
		if ok && f.unpaired(from) && f.changes[from].Kind == Deleted {
			f.pair(from, to)
			f.whole[from] = true
		}
	}
}

// byInode pairs a deleted and an added path as a rename if they have the same inode number. It leaves out
// nodes on other filesystems in the trees, which have numbers of their own.
func (f *finder) byInode() {
	type identity struct {
		ino, mode   uint64
		size, mtime int64
	}
	for _, b := range matchSets(f, func(i int, n *Node) (identity, bool) {
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

// deepest is the number of last path elements that are compared to choose which of several equal files is the
// renamed one.
const deepest = 16

// match pairs, as renames, the deleted with the added changes of a set whose members may be the same file or
// directory: first those whose paths have the longest common end, then the others in order.
func (f *finder) match(b *matchSet) {
	if len(b.from) > 1 || len(b.to) > 1 {
		for n := deepest; n > 0; n-- {
			f.matchEnds(b, n)
		}
	}
	to := b.to
	for _, i := range b.from {
		if !f.unpaired(i) {
			continue
		}
		for len(to) > 0 && !f.unpaired(to[0]) {
			to = to[1:]
		}
		if len(to) == 0 {
			return
		}
		f.pair(i, to[0])
	}
}

// matchEnds pairs as renames those deleted and added changes of the set b whose paths end with the same n
// elements.
func (f *finder) matchEnds(b *matchSet, n int) {
	free := map[string][]int{}
	for _, i := range b.to {
		if end, ok := ending(f.changes[i].Path, n); ok && f.unpaired(i) {
			free[end] = append(free[end], i)
		}
	}
	for _, i := range b.from {
		end, ok := ending(f.changes[i].Path, n)
		if same := free[end]; ok && f.unpaired(i) && len(same) > 0 {
			f.pair(i, same[0])
			free[end] = same[1:]
		}
	}
}

// ending returns the last n elements of a path; false if the path has fewer. Equal files with an equal ending
// count as renames first.
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

// renames returns the renames that the search among the changes has found, in the order of their new paths,
// with their similarity.
func (f *finder) renames() ([]Rename, error) {
	var all []Rename
	for to, from := range f.partner {
		if from < 0 || f.changes[to].Kind != Added {
			continue
		}
		r := Rename{From: f.changes[from].Path, To: f.changes[to].Path, Dir: f.whole[from], Entries: f.changes[to].Unlisted()}
		var err error
		if r.Exact, r.Similarity, err = f.similarityOf(from, to); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
