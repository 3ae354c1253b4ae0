package merge

import (
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
)

// collect makes the result of the merge from the decisions on all files: the changes that turn the real tree
// into the merged one, where their content is, and the conflicts.
func (m *merger) collect() error {
	is, needed, paths := m.outcomes()
	m.classes = m.mergedLinks()
	changed := map[string]*entry{} // by path; nil where the merged tree has none
	for _, path := range paths {
		if err := m.ctx.Err(); err != nil {
			return fail(path, err)
		}
		was := m.entries.at[real][path]
		if was != nil && (was.withheld || is[path] == nil && needed[path]) {
			continue
		}
		c, err := m.change(path, was, is[path])
		if err != nil {
			return err
		}
		if c.Kind != 0 {
			m.result.Changes = append(m.result.Changes, c)
			changed[path] = is[path]
		}
	}
	m.result.Changes = dropTimes(m.result.Changes)
	m.setLinks(changed)
	for _, c := range m.result.Changes {
		t := changed[c.Path]
		switch {
		case t == nil || c.New == nil:
		case t.outcome.from == built:
			m.result.Built[c.Path] = true
		case t.outcome.from == fromMine && isFile(c.New) && t.on[mine].path != c.Path:
			m.result.From[c.Path] = t.on[mine].path
		}
	}
	m.result.Conflicts = joinOverlapping(m.result.Conflicts)
	slices.SortStableFunc(m.result.Conflicts, func(a, b Conflict) int { return diff.ComparePaths(a.Path, b.Path) })
	return nil
}

// outcomes returns the entries of the merged tree by path (is), the real directories in which files with an
// open conflict lie, so that they must stay (needed), and every path that the real or the merged tree has,
// sorted.
func (m *merger) outcomes() (is map[string]*entry, needed map[string]bool, paths []string) {
	is, needed = map[string]*entry{}, map[string]bool{}
	for _, t := range m.entries.all {
		if t.withheld {
			for dir := t.on[real].path; dir != "" && dir != "."; {
				dir = parent(dir)
				needed[dir] = true
			}
			continue
		}
		if t.has(real) {
			paths = append(paths, t.on[real].path)
		}
		if t.outcome.node != nil {
			is[t.outcome.path] = t
			paths = append(paths, t.outcome.path)
		}
	}
	slices.SortFunc(paths, diff.ComparePaths)
	return is, needed, slices.Compact(paths)
}

// change returns how the merged tree differs from the real one at path. was is the file that the real tree
// has there and is the one of the merged tree; nil for none. Kind is 0 where nothing differs.
func (m *merger) change(path string, was, is *entry) (diff.Change, error) {
	c := diff.Change{Path: path}
	if was != nil {
		old := *was.on[real].node
		c.Old, c.Kind = &old, diff.Deleted
	}
	if is != nil {
		n := *is.outcome.node
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
	if c.What&diff.Type == 0 && was == is && m.changesLinks(is) {
		c.What |= diff.Links
	}
	if c.What == 0 {
		c.Kind = 0
	}
	return c, nil
}

// changesLinks reports whether the merged tree gives a file other hard links than the real tree, or one of them
// another path, which must become a link of the real file. Names with an open conflict, which keep their links, do
// not count.
func (m *merger) changesLinks(t *entry) bool {
	now := map[*entry]bool{t: true}
	for _, x := range m.classes[t] {
		if x.outcome.path != x.on[real].path {
			return true
		}
		now[x] = true
	}
	before := 0
	for _, x := range m.links.of(real, t) {
		if x.withheld {
			continue
		}
		if before++; !now[x] {
			return true
		}
	}
	return before != len(now)
}

// dropTimes removes from the result of a merge changes of only the modification time of those directories in
// which the result adds or removes a name: that sets the time anyway.
func dropTimes(changes []diff.Change) []diff.Change {
	busy := map[string]bool{}
	for _, c := range changes {
		if c.Kind != diff.Modified {
			busy[parent(c.Path)] = true
		}
	}
	if len(busy) == 0 {
		return changes
	}
	for i := range changes {
		if c := &changes[i]; c.Kind == diff.Modified && c.New.IsDir() && busy[c.Path] {
			c.What &^= diff.Time
		}
	}
	return slices.DeleteFunc(changes, func(c diff.Change) bool { return c.Kind == diff.Modified && c.What == 0 })
}

// setLinks sets the field LinkOf of all nodes in the result, so that hard links name the first changed path
// of the same file. ends has the merged tree's entry at each changed path.
func (m *merger) setLinks(ends map[string]*entry) {
	oldFirst, newFirst := map[string]string{}, map[*entry]string{}
	for i := range m.result.Changes {
		c := &m.result.Changes[i]
		if c.Old != nil {
			c.Old.LinkOf = ""
			if name := m.entries.at[real][c.Path].on[real].new; name != "" {
				c.Old.LinkOf = firstOf(oldFirst, name, c.Path)
			}
		}
		if c.New != nil {
			class := m.classes[ends[c.Path]]
			c.New.LinkOf = ""
			if len(class) > 1 {
				c.New.LinkOf = firstOf(newFirst, class[0], c.Path)
				c.New.NLink = max(c.New.NLink, uint32(len(class)))
			} else if !c.New.Mode.IsDir() && m.hadLinks(ends[c.Path]) {
				c.New.NLink = 1
			}
		}
	}
}

// firstOf stores path in first as the first path of the inode or other identity key, unless there is one. It
// returns the earlier first path, else "".
func firstOf[K comparable](first map[K]string, key K, path string) string {
	if first[key] == "" {
		first[key] = path
	}
	if first[key] == path {
		return ""
	}
	return first[key]
}

func (m *merger) hadLinks(t *entry) bool {
	return len(m.links.of(mine, t)) > 1 || len(m.links.of(real, t)) > 1
}

// mergedLinks returns which files of the merged tree are hard links of each other: for each entry its group.
// The links of one side (sandbox or real tree) count unless only the other side has changed the file's links.
func (m *merger) mergedLinks() map[*entry][]*entry {
	classes := map[*entry][]*entry{}
	for _, side := range []int{mine, real} {
		names := make([]string, 0, len(m.links.new[side]))
		for name := range m.links.new[side] {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			var first *entry
			for _, t := range m.links.new[side][name] {
				if !m.linksApply(side, t) || first != nil && !linkable(first, t) {
					continue
				}
				if first == nil {
					first = t
				}
				union(classes, first, t)
			}
		}
	}
	return classes
}

// linksApply reports whether the merged tree takes from this side, mine (sandbox) or real, the decision which
// names are hard links of the file t.
func (m *merger) linksApply(side int, t *entry) bool {
	switch {
	case t.withheld || t.outcome.node == nil || t.outcome.node.Mode.IsDir():
		return false
	case t.chosen != 0:
		return t.chosen == side
	}
	return !m.links.relinked(other(side), t) || m.links.relinked(side, t)
}

// linkable reports whether two files of the merged tree can be hard links of each other: they agree in size
// and metadata.
func linkable(a, b *entry) bool {
	return a.outcome.node.Size == b.outcome.node.Size && differ(a.outcome.node, b.outcome.node, false)&^diff.Time == 0
}

// union joins the groups of hard links to which the files a and b belong. classes has the group of each file
// of the merged tree.
func union(classes map[*entry][]*entry, a, b *entry) {
	x, y := classes[a], classes[b]
	if x == nil {
		x = []*entry{a}
	}
	if y == nil {
		y = []*entry{b}
	}
	if x[0] != y[0] {
		x = append(x[:len(x):len(x)], y...)
	}
	for _, t := range x {
		classes[t] = x
	}
}
