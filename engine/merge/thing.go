package merge

import (
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
)

// The three trees, as indexes.
const (
	base = iota
	mine
	real
)

// other is the other side.
func other(side int) int { return mine + real - side }

// A thing is one node, wherever each of the three trees has it: under one path,
// or several where it was renamed.
type thing struct {
	on [3]state
	// end is what the merged tree has of it.
	end end
	// done: end is decided. left: it is part of a conflict that nobody has
	// answered, so it stays as the real tree has it.
	done, left bool
	// conflict is the number of that, in the result.
	conflict int
	// chosen is the side that an answer took all of, or 0.
	chosen int
}

// A state is what one tree has of a thing; there is no node where it has none.
type state struct {
	path string
	node *diff.Node
	// what differs from the base, where both have it.
	what diff.Aspect
	// told: the side's changes speak of it.
	told bool
	// old and new name the group of hard links that it belongs to in the base and
	// on this side, as the side's changes tell them: see [diff.Node.LinkOf].
	old, new string
}

// An end is a node of the merged tree, and where its content lies.
type end struct {
	path string
	node *diff.Node
	from source
}

func (t *thing) has(side int) bool { return t.on[side].node != nil }

func (t *thing) isDir(side int) bool { return isDir(t.on[side].node) }

// as is the thing just as a side has it.
func (t *thing) as(side int) end {
	s := t.on[side]
	if s.node == nil {
		return end{}
	}
	return end{s.path, s.node, []source{mine: fromMine, real: fromReal}[side]}
}

// lies reports whether the merged tree has a thing at a path, as far as that is decided.
func (t *thing) lies(path string) bool {
	if t.left {
		return t.on[real].path == path
	}
	return t.end.node != nil && t.end.path == path
}

// touched reports whether a side gave the thing something that would be lost with
// it. A time is nothing of that kind, nor is another name.
func (t *thing) touched(side int) bool {
	return t.on[side].what&^(diff.Time|diff.Links) != 0
}

// first is the path by which things are put in order.
func (t *thing) first() string {
	for _, s := range t.on {
		if s.path != "" {
			return s.path
		}
	}
	return ""
}

func isDir(n *diff.Node) bool { return n != nil && n.Mode.IsDir() }

func isFile(n *diff.Node) bool { return n != nil && n.Mode.IsRegular() }

func beneath(path, dir string) bool {
	return dir == "." && path != "." || strings.HasPrefix(path, dir) && len(path) > len(dir) && path[len(dir)] == '/'
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return "."
}

func byPath(a, b string) int {
	switch {
	case diff.Less(a, b):
		return -1
	case diff.Less(b, a):
		return 1
	}
	return 0
}

// things are all that the changes of either side speak of.
type things struct {
	all []*thing // in the order of their first path
	// at finds a thing by its path in a tree; order has those that a tree has, in
	// the order of their paths there.
	at    [3]map[string]*thing
	order [3][]*thing
	// moved are the directories that a side moved as a whole.
	moved [3]map[string]string
}

// gather pairs the changes of both sides.
func gather(changes [3][]diff.Change, renames [3][]diff.Rename) *things {
	all := &things{}
	for tree := range all.at {
		all.at[tree] = map[string]*thing{}
	}
	for _, side := range []int{mine, real} {
		all.side(side, changes[side], renames[side])
	}
	for _, t := range all.all {
		for _, side := range []int{mine, real} {
			if b := t.on[base]; b.node != nil && !t.on[side].told {
				o := t.on[other(side)]
				n := *b.node
				n.CTime = time.Time{} // is the base's: this side has a node of its own
				t.on[side] = state{path: b.path, node: &n, old: o.old, new: o.old}
			}
		}
	}
	slices.SortFunc(all.all, func(a, b *thing) int { return byPath(a.first(), b.first()) })
	all.index()
	return all
}

// side takes the changes of a side in.
func (all *things) side(side int, changes []diff.Change, renames []diff.Rename) {
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
			all.known(c).on[side] = state{r.To, n, differ(c.Old, n, !r.Exact), true, group(c.Path, c.Old), group(r.To, n)}
		case c.Kind == diff.Deleted:
			all.known(c).on[side] = state{told: true, old: group(c.Path, c.Old)}
		default:
			all.known(c).on[side] = state{c.Path, c.New, c.What, true, group(c.Path, c.Old), group(c.Path, c.New)}
		}
	}
}

// add takes something in that a side has added; both sides may have, at one path.
func (all *things) add(side int, c *diff.Change) {
	t := all.at[other(side)][c.Path]
	if t == nil || t.has(base) || t.has(side) {
		t = all.make()
	}
	t.on[side] = state{path: c.Path, node: c.New, told: true, new: group(c.Path, c.New)}
	all.at[side][c.Path] = t
}

// known finds what the base has at the path of a change.
func (all *things) known(c *diff.Change) *thing {
	t := all.at[base][c.Path]
	if t == nil {
		t = all.make()
		t.on[base] = state{path: c.Path, node: c.Old}
		all.at[base][c.Path] = t
	}
	return t
}

func (all *things) make() *thing {
	t := &thing{}
	all.all = append(all.all, t)
	return t
}

// index makes at and order, once all things are known.
func (all *things) index() {
	for tree := range all.at {
		all.at[tree], all.order[tree] = map[string]*thing{}, nil
		for _, t := range all.all {
			if t.has(tree) {
				all.at[tree][t.on[tree].path] = t
				all.order[tree] = append(all.order[tree], t)
			}
		}
		slices.SortFunc(all.order[tree], func(a, b *thing) int { return byPath(a.on[tree].path, b.on[tree].path) })
	}
}

// under calls f for what a tree has at a path and beneath it.
func (all *things) under(tree int, path string, f func(t *thing)) {
	list := all.order[tree]
	i, _ := slices.BinarySearchFunc(list, path, func(t *thing, path string) int { return byPath(t.on[tree].path, path) })
	for ; i < len(list) && (list[i].on[tree].path == path || beneath(list[i].on[tree].path, path)); i++ {
		f(list[i])
	}
}

// follow says where a path comes to lie when what a side did to the directories
// above it is done to it, too.
func (all *things) follow(side int, path string) string {
	for dir := parent(path); dir != "."; dir = parent(dir) {
		if to, ok := all.moved[side][dir]; ok {
			return to + path[len(dir):]
		}
	}
	return path
}

// went reports whether a side moved a thing itself, not just a directory above it.
func (all *things) went(side int, t *thing) bool {
	b, s := t.on[base], t.on[side]
	return b.node != nil && s.node != nil && s.path != b.path && all.follow(side, b.path) != s.path
}

// spot is where the merged tree has a thing that both sides have, or one alone
// has added. ok is false where both moved it, to different places.
func (all *things) spot(t *thing) (path string, ok bool) {
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
	wentMine, wentReal := all.went(mine, t), all.went(real, t)
	switch {
	case wentMine && wentReal:
		return m, false
	case wentReal:
		return all.follow(mine, r), true
	case wentMine:
		return all.follow(real, m), true
	case all.follow(mine, r) != r: // one directory lies in the other
		return all.follow(mine, r), true
	case all.follow(real, m) != m:
		return all.follow(real, m), true
	}
	return m, false
}
