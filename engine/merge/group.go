package merge

import "github.com/snapfs/snapfs/engine/diff"

// Hard links. Each side's changes show which of their paths are one file. A side has
// relinked a file if its group of links differs from that in the base by more than the
// links that the side deleted.

// group returns the name of the group of hard links of one file that path, which a side has changed, belongs to: the
// first path of the group. It returns "" for a node n with one name.
func group(path string, n *diff.Node) string {
	switch {
	case n == nil || n.NLink < 2 || n.Mode.IsDir():
		return ""
	case n.LinkOf != "":
		return n.LinkOf
	}
	return path
}

// groups holds the files of each group of hard links, by the first path of the group.
type groups map[string][]*entry

// linkGroups holds, for each side (mine or real), the groups of hard links that changed files have in the
// base (old) and on that side (new).
type linkGroups struct{ old, new [3]groups }

// linkGroups collects which changed files are hard links of one another, in the base, in the sandbox and in
// the real tree.
func (all *entries) linkGroups() *linkGroups {
	g := &linkGroups{}
	for _, side := range []int{mine, real} {
		g.old[side], g.new[side] = groups{}, groups{}
		for _, t := range all.all {
			s := t.on[side]
			if s.old != "" {
				g.old[side][s.old] = append(g.old[side][s.old], t)
			}
			if s.new != "" && s.node != nil {
				g.new[side][s.new] = append(g.new[side][s.new], t)
			}
		}
	}
	return g
}

// of returns all entries that are, on a side of the merge (sandbox or real tree), hard links of one file with
// t, including t.
func (g *linkGroups) of(side int, t *entry) []*entry {
	if list := g.new[side][t.on[side].new]; len(list) > 1 && t.on[side].new != "" {
		return list
	}
	return []*entry{t}
}

// relinked reports whether a side of the merge (sandbox or real tree) changed which names are hard links of
// the file t. Deleting a link does not count.
func (g *linkGroups) relinked(side int, t *entry) bool {
	s := t.on[side]
	if !s.listed || s.node == nil {
		return false
	}
	now := map[*entry]bool{}
	for _, x := range g.of(side, t) {
		now[x] = true
	}
	before := 0
	if s.old != "" {
		for _, x := range g.old[side][s.old] {
			if x != t && !x.has(side) {
				continue
			}
			if before++; !now[x] {
				return true
			}
		}
	} else {
		before = 1
	}
	return before != len(now)
}

// sameLinks reports whether the file t has the same hard links (further names) in the sandbox and in the real
// tree.
func (g *linkGroups) sameLinks(t *entry) bool {
	m, r := g.of(mine, t), g.of(real, t)
	if len(m) != len(r) {
		return false
	}
	set := map[*entry]bool{}
	for _, x := range m {
		set[x] = true
	}
	for _, x := range r {
		if !set[x] {
			return false
		}
	}
	return true
}
