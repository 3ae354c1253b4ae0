package merge

import (
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
)

// The three trees of a merge, as array indexes: base is their common state, mine the sandbox, real the real
// tree.
const (
	base = iota
	mine
	real
)

// other returns the opposite side of a merge: real (the real tree) for mine (the sandbox), and vice versa.
func other(side int) int { return mine + real - side }

// An entry is one file or directory with its state in the base, in the sandbox and in the real tree, and its
// outcome in the merged tree. The paths differ after a rename.
type entry struct {
	on [3]state
	// outcome is the node in the merged tree.
	outcome outcome
	// done is set once outcome is decided. withheld is set if an open conflict covers the
	// entry, which then stays as in the real tree.
	done, withheld bool
	// conflict is the index in the result of the open conflict that covers the entry.
	conflict int
	// chosen is the side that an answer chose for the whole entry, or 0.
	chosen int
}

// A state is how one file of the merge is in one of the three trees: base, sandbox or real. node is nil if
// that tree does not have it.
type state struct {
	path string
	node *diff.Node
	// what lists the aspects that differ from the base, if both trees have the entry.
	what diff.Aspect
	// listed is set if the side's changes list the entry.
	listed bool
	// old and new name the entry's group of hard links in the base and on this side,
	// from the side's changes; see [diff.Node.LinkOf].
	old, new string
}

// An outcome is how one file or directory will be in the merged tree: its path and metadata, and where its
// content comes from.
type outcome struct {
	path string
	node *diff.Node
	from source
}

func (t *entry) has(side int) bool { return t.on[side].node != nil }

func (t *entry) isDir(side int) bool { return t.on[side].node.IsDir() }

// asOn returns how the merged tree has the file if the merge takes it from one side, mine (the sandbox) or
// real (the real tree), unchanged.
func (t *entry) asOn(side int) outcome {
	s := t.on[side]
	if s.node == nil {
		return outcome{}
	}
	return outcome{s.path, s.node, []source{mine: fromMine, real: fromReal}[side]}
}

// occupies reports whether this file or directory will be at path in the merged tree, by the decisions made
// so far.
func (t *entry) occupies(path string) bool {
	if t.withheld {
		return t.on[real].path == path
	}
	return t.outcome.node != nil && t.outcome.path == path
}

// changed reports whether a side (sandbox or real tree) changed the file so that deleting it would lose the
// change. Changes of times and hard links do not count.
func (t *entry) changed(side int) bool {
	return t.on[side].what&^(diff.Time|diff.Links) != 0
}

// sortPath returns the path by which the merge sorts its files: that in the base, else that in the sandbox,
// else that in the real tree.
func (t *entry) sortPath() string {
	for _, s := range t.on {
		if s.path != "" {
			return s.path
		}
	}
	return ""
}

func isFile(n *diff.Node) bool { return n != nil && n.Mode.IsRegular() }

func parent(path string) string {
	dir, _ := diff.Split(path)
	return dir
}

// An entries holds the state of a merge for every file or directory that the sandbox or the real tree has
// changed, and finds them by path.
type entries struct {
	all []*entry // sorted by their first path
	// at finds an entry by its path in a tree; order has each tree's entries, sorted by
	// their path there.
	at    [3]map[string]*entry
	order [3][]*entry
	// moved maps each directory that a side moved as a whole to its new path.
	moved [3]map[string]string
}

// pair returns one entry for each file or directory that the changes of the sandbox or of the real tree list.
// If only one of the two changed it, the entry has the node of the base for the other.
func pair(changes [3][]diff.Change, renames [3][]diff.Rename) *entries {
	all := &entries{}
	for tree := range all.at {
		all.at[tree] = map[string]*entry{}
	}
	for _, side := range []int{mine, real} {
		all.addSide(side, changes[side], renames[side])
	}
	for _, t := range all.all {
		for _, side := range []int{mine, real} {
			if b := t.on[base]; b.node != nil && !t.on[side].listed {
				o := t.on[other(side)]
				n := *b.node
				n.CTime = time.Time{} // the change time belongs to the base's inode, this side has another
				t.on[side] = state{path: b.path, node: &n, old: o.old, new: o.old}
			}
		}
	}
	slices.SortFunc(all.all, func(a, b *entry) int { return diff.ComparePaths(a.sortPath(), b.sortPath()) })
	all.index()
	return all
}

// addSide stores the changes and renames of one side, mine (sandbox) or real, in the list of changed files,
// and adds missing files to it.
func (all *entries) addSide(side int, changes []diff.Change, renames []diff.Rename) {
	to, from := map[string]diff.Rename{}, map[string]bool{}
	all.moved[side] = map[string]string{}
	for _, r := range renames {
		to[r.From], from[r.To] = r, true
		if r.Dir {
			all.moved[side][r.From] = r.To
		}
	}
	added := map[string]*diff.Change{}
	for i := range changes {
		if c := &changes[i]; c.Kind == diff.Added {
			added[c.Path] = c
		}
	}
	for i := range changes {
		c := &changes[i]
		r, renamed := to[c.Path]
		switch {
		case c.Kind == diff.Added && from[c.Path]:
		case c.Kind == diff.Added:
			all.add(side, c)
		case c.Kind == diff.Deleted && renamed && added[r.To] != nil:
			n := added[r.To].New
			all.inBase(c).on[side] = state{r.To, n, differ(c.Old, n, !r.Exact), true, group(c.Path, c.Old), group(r.To, n)}
		case c.Kind == diff.Deleted:
			all.inBase(c).on[side] = state{listed: true, old: group(c.Path, c.Old)}
		default:
			all.inBase(c).on[side] = state{c.Path, c.New, c.What, true, group(c.Path, c.Old), group(c.Path, c.New)}
		}
	}
}

// add stores in an entry of the merge that a side (sandbox or real tree) added the file of c. The other side
// may have added one at that path, too.
func (all *entries) add(side int, c *diff.Change) {
	t := all.at[other(side)][c.Path]
	if t == nil || t.has(base) || t.has(side) {
		t = all.make()
	}
	t.on[side] = state{path: c.Path, node: c.New, listed: true, new: group(c.Path, c.New)}
	all.at[side][c.Path] = t
}

// inBase returns the entry of the file in the base that the change c modifies or deletes, and adds the entry
// if it is missing.
func (all *entries) inBase(c *diff.Change) *entry {
	t := all.at[base][c.Path]
	if t == nil {
		t = all.make()
		t.on[base] = state{path: c.Path, node: c.Old}
		all.at[base][c.Path] = t
	}
	return t
}

func (all *entries) make() *entry {
	t := &entry{}
	all.all = append(all.all, t)
	return t
}

// index fills in the fields at and order, by which a file of the merge is found by its path in each tree,
// from the list all.
func (all *entries) index() {
	for tree := range all.at {
		all.at[tree], all.order[tree] = map[string]*entry{}, nil
		for _, t := range all.all {
			if t.has(tree) {
				all.at[tree][t.on[tree].path] = t
				all.order[tree] = append(all.order[tree], t)
			}
		}
		slices.SortFunc(all.order[tree], func(a, b *entry) int { return diff.ComparePaths(a.on[tree].path, b.on[tree].path) })
	}
}

// under calls f for the changed files that a tree (base, sandbox or real) has at path and below, in the order
// of their paths.
func (all *entries) under(tree int, path string, f func(t *entry)) {
	list := all.order[tree]
	i, _ := slices.BinarySearchFunc(list, path, func(t *entry, path string) int { return diff.ComparePaths(t.on[tree].path, path) })
	for ; i < len(list) && (list[i].on[tree].path == path || diff.Inside(list[i].on[tree].path, path)); i++ {
		f(list[i])
	}
}

// follow returns where a path of the base is on one side of the merge (sandbox or real tree) after that
// side's renames of the directories above it.
func (all *entries) follow(side int, path string) string {
	for dir := parent(path); dir != "."; dir = parent(dir) {
		if to, ok := all.moved[side][dir]; ok {
			return to + path[len(dir):]
		}
	}
	return path
}

// movedItself reports whether a side of the merge (sandbox or real tree) renamed the file t itself, not only
// a directory above it.
func (all *entries) movedItself(side int, t *entry) bool {
	b, s := t.on[base], t.on[side]
	return b.node != nil && s.node != nil && s.path != b.path && all.follow(side, b.path) != s.path
}

// destination returns the path of a file in the merged tree, if sandbox and real tree both have it or one
// added it. ok is false if both renamed it, to different paths.
func (all *entries) destination(t *entry) (path string, ok bool) {
	b, m, r := t.on[base].path, t.on[mine].path, t.on[real].path
	switch {
	case !t.has(real):
		return all.follow(real, m), true
	case !t.has(mine):
		return all.follow(mine, r), true
	case m == r:
		return m, true
	case m == b:
		return all.follow(mine, r), true
	case r == b:
		return all.follow(real, m), true
	}
	wentMine, wentReal := all.movedItself(mine, t), all.movedItself(real, t)
	switch {
	case wentMine && wentReal:
		return m, false
	case wentReal:
		return all.follow(mine, r), true
	case wentMine:
		return all.follow(real, m), true
	case all.follow(mine, r) != r: // one of the two directories contains the other
		return all.follow(mine, r), true
	case all.follow(real, m) != m:
		return all.follow(real, m), true
	}
	return m, false
}
