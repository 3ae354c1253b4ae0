package merge

import (
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
)

// answer writes down what the merged tree changes in the real one.
func (m *merger) answer() error {
	is, needed := map[string]*thing{}, map[string]bool{} // the directories of what is left
	var paths []string
	for _, t := range m.things.all {
		if t.left {
			for dir := t.on[real].path; dir != "" && dir != "."; {
				dir = parent(dir)
				needed[dir] = true
			}
			continue
		}
		if t.has(real) {
			paths = append(paths, t.on[real].path)
		}
		if t.end.node != nil {
			is[t.end.path] = t
			paths = append(paths, t.end.path)
		}
	}
	slices.SortFunc(paths, byPath)
	m.classes = m.oneFiles()
	ends := map[string]*thing{} // of the changes
	for _, path := range slices.Compact(paths) {
		was := m.things.at[real][path]
		if was != nil && (was.left || is[path] == nil && needed[path]) {
			continue
		}
		c, err := m.change(path, was, is[path])
		if err != nil {
			return err
		}
		if c.Kind != 0 {
			m.result.Changes = append(m.result.Changes, c)
			ends[path] = is[path]
		}
	}
	m.dropTimes()
	m.join(ends)
	for _, c := range m.result.Changes {
		t := ends[c.Path]
		switch {
		case t == nil || c.New == nil:
		case t.end.from == built:
			m.result.Built[c.Path] = true
		case t.end.from == fromMine && isFile(c.New) && t.on[mine].path != c.Path:
			m.result.From[c.Path] = t.on[mine].path
		}
	}
	m.result.Conflicts = united(m.result.Conflicts)
	slices.SortStableFunc(m.result.Conflicts, func(a, b Conflict) int { return byPath(a.Path, b.Path) })
	return nil
}

// change is what happens at a path of the real tree, where it has the thing was, and
// the merged tree has the thing is. Kind is 0 where nothing does.
func (m *merger) change(path string, was, is *thing) (diff.Change, error) {
	c := diff.Change{Path: path}
	if was != nil {
		old := *was.on[real].node
		c.Old, c.Kind = &old, diff.Deleted
	}
	if is != nil {
		n := *is.end.node
		c.New, c.Kind = &n, diff.Added
	}
	if was == nil || is == nil {
		return c, nil
	}
	content := false
	if isFile(c.Old) && isFile(c.New) {
		var err error
		if content, err = m.changedContent(was, is); err != nil {
			return c, err
		}
	}
	c.Kind, c.What = diff.Modified, differ(c.Old, c.New, content)
	if c.What&diff.Type == 0 && was == is && m.relinks(is) {
		c.What |= diff.Links
	}
	if c.What == 0 {
		c.Kind = 0
	}
	return c, nil
}

// relinks reports whether the merged tree has other names for a thing than the real
// one. What is left keeps its names.
func (m *merger) relinks(t *thing) bool {
	now := map[*thing]bool{t: true}
	for _, x := range m.classes[t] {
		now[x] = true
	}
	before := 0
	for _, x := range m.links.of(real, t) {
		if x.left {
			continue
		}
		if before++; !now[x] {
			return true
		}
	}
	return before != len(now)
}

// dropTimes leaves the times of directories out in which names change.
func (m *merger) dropTimes() {
	busy := map[string]bool{}
	for _, c := range m.result.Changes {
		if c.Kind != diff.Modified {
			busy[parent(c.Path)] = true
		}
	}
	m.result.Changes = slices.DeleteFunc(m.result.Changes, func(c diff.Change) bool {
		return c.Kind == diff.Modified && c.What == diff.Time && c.New.Mode.IsDir() && busy[c.Path]
	})
	for i := range m.result.Changes {
		if c := &m.result.Changes[i]; c.Kind == diff.Modified && isDir(c.New) && busy[c.Path] {
			c.What &^= diff.Time
		}
	}
}

// join names the hard links among the changes, on both sides of them.
func (m *merger) join(ends map[string]*thing) {
	oldFirst, newFirst := map[string]string{}, map[*thing]string{}
	for i := range m.result.Changes {
		c := &m.result.Changes[i]
		if c.Old != nil {
			c.Old.LinkOf = ""
			if name := m.things.at[real][c.Path].on[real].new; name != "" {
				c.Old.LinkOf = firstOf(oldFirst, name, c.Path)
			}
		}
		if c.New != nil {
			class := m.classes[ends[c.Path]]
			c.New.LinkOf = ""
			if len(class) > 1 {
				c.New.LinkOf = firstOf(newFirst, class[0], c.Path)
				c.New.NLink = max(c.New.NLink, uint32(len(class)))
			} else if !c.New.Mode.IsDir() && m.wasJoined(ends[c.Path]) {
				c.New.NLink = 1
			}
		}
	}
}

// firstOf is the first path that came with a key, or "" where it is this one.
func firstOf[K comparable](first map[K]string, key K, path string) string {
	if first[key] == "" {
		first[key] = path
	}
	if first[key] == path {
		return ""
	}
	return first[key]
}

func (m *merger) wasJoined(t *thing) bool {
	return len(m.links.of(mine, t)) > 1 || len(m.links.of(real, t)) > 1
}

// oneFiles are the things that are one file in the merged tree, by each of them. A
// side's groups hold where the other side has not relinked one.
func (m *merger) oneFiles() map[*thing][]*thing {
	classes := map[*thing][]*thing{}
	for _, side := range []int{mine, real} {
		names := make([]string, 0, len(m.links.new[side]))
		for name := range m.links.new[side] {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			var first *thing
			for _, t := range m.links.new[side][name] {
				if !m.holds(side, t) || first != nil && !oneFile(first, t) {
					continue
				}
				if first == nil {
					first = t
				}
				unite(classes, first, t)
			}
		}
	}
	return classes
}

// holds reports whether a side's group is that of a thing in the merged tree.
func (m *merger) holds(side int, t *thing) bool {
	switch {
	case t.left || t.end.node == nil || t.end.node.Mode.IsDir():
		return false
	case t.chosen != 0:
		return t.chosen == side
	}
	return !m.links.relinked(other(side), t) || m.links.relinked(side, t)
}

// oneFile reports whether two things can be names of one file.
func oneFile(a, b *thing) bool {
	return a.end.node.Size == b.end.node.Size && differ(a.end.node, b.end.node, false)&^diff.Time == 0
}

func unite(classes map[*thing][]*thing, a, b *thing) {
	x, y := classes[a], classes[b]
	if x == nil {
		x = []*thing{a}
	}
	if y == nil {
		y = []*thing{b}
	}
	if x[0] != y[0] {
		x = append(x[:len(x):len(x)], y...)
	}
	for _, t := range x {
		classes[t] = x
	}
}
