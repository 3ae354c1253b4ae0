package merge

import "github.com/snapfs/snapfs/engine/diff"

// Hard links. Each side's changes tell which of their paths are one file. A side
// has relinked a thing where its companions are others than in the base, those
// aside that it has deleted.

// group names the group of links of a changed node, by its first path; "" for a
// node that has no other name.
func group(path string, n *diff.Node) string {
	switch {
	case n == nil || n.NLink < 2 || n.Mode.IsDir():
		return ""
	case n.LinkOf != "":
		return n.LinkOf
	}
	return path
}

// groups holds the members of each group, by its name.
type groups map[string][]*thing

// companions are the groups in the base and on the side, as each side tells them.
type companions struct{ old, new [3]groups }

func (all *things) companions() *companions {
	g := &companions{}
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

// of are the things that are one file with t on a side, t included.
func (g *companions) of(side int, t *thing) []*thing {
	if list := g.new[side][t.on[side].new]; len(list) > 1 && t.on[side].new != "" {
		return list
	}
	return []*thing{t}
}

// relinked reports whether a side has other names for a thing than the base.
func (g *companions) relinked(side int, t *thing) bool {
	s := t.on[side]
	if !s.told || s.node == nil {
		return false
	}
	now := map[*thing]bool{}
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

// sameLinks reports whether a thing is one file with the same others on both sides.
func (g *companions) sameLinks(t *thing) bool {
	m, r := g.of(mine, t), g.of(real, t)
	if len(m) != len(r) {
		return false
	}
	set := map[*thing]bool{}
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
