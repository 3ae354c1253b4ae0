package merge

import "github.com/snapfs/snapfs/engine/diff"

// makeConsistent makes sure that the merged tree can exist: no two files have one path, and each is in a
// directory. Files with an open conflict stay at their path in the real tree. Each round answers a conflict,
// makes a file part of one or restores a directory, so the loop ends.
func (m *merger) makeConsistent() error {
	for {
		if err := m.avoidConflicts(); err != nil {
			return err
		}
		taken := map[string]*entry{}
		for _, t := range m.entries.all {
			if t.withheld && t.has(real) {
				taken[t.on[real].path] = t
			}
		}
		changed, err := m.findCollisions(taken)
		if err == nil && !changed {
			changed, err = m.ensureParents(taken)
		}
		if err != nil || !changed {
			return err
		}
	}
}

// avoidConflicts makes each file whose path in the merged tree would be that of an open conflict part of that
// conflict.
func (m *merger) avoidConflicts() error {
	for _, t := range m.entries.all {
		if err := m.interrupted(t); err != nil {
			return err
		}
		if t.withheld || t.outcome.node == nil {
			continue
		}
		if conflict, shut := m.conflictAt(t.outcome.path); shut {
			if err := m.withhold(t, conflict); err != nil {
				return err
			}
		}
	}
	return nil
}

// findCollisions looks for two files that would have the same path in the merged tree, and reports the
// conflict. It fills in taken with the file at each path. changed is true if it changed how a file will be in
// that tree.
func (m *merger) findCollisions(taken map[string]*entry) (changed bool, err error) {
	for _, t := range m.entries.all {
		if err := m.interrupted(t); err != nil {
			return changed, err
		}
		if t.withheld || t.outcome.node == nil {
			continue
		}
		x := taken[t.outcome.path]
		switch {
		case x == nil || !x.occupies(t.outcome.path): // x has moved since
			taken[t.outcome.path] = t
		case x.withheld:
			changed, err = true, m.withhold(t, x.conflict)
		default:
			if _, shut := m.conflictAt(t.outcome.path); changed && shut {
				continue // a conflict of this round covers the path: the next round withholds both
			}
			changed, err = true, m.reportCollision(t, x)
		}
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// conflictAt returns the index, in the result, of the open conflict that covers a path; shut is false if none
// does.
func (m *merger) conflictAt(path string) (conflict int, shut bool) {
	for at := path; at != "." && !shut; at = parent(at) {
		conflict, shut = m.blocked[at]
	}
	return conflict, shut
}

// withhold makes a file, with everything below its paths, part of an open conflict: the merged tree has it as
// the real tree has it until the conflict is answered.
func (m *merger) withhold(t *entry, conflict int) error {
	all, places := m.affected(t, []string{t.on[base].path, t.on[mine].path, t.on[real].path})
	c := &m.result.Conflicts[conflict]
	c.Several = true
	c.include(all)
	return m.withholdAll(all, places, conflict)
}

// withholdAll makes all files in the list part of an open conflict, so that they stay as in the real tree
// until it is answered, and reserves the paths of the conflict, places, for them.
func (m *merger) withholdAll(all []*entry, places []string, conflict int) error {
	for _, path := range places {
		if _, shut := m.blocked[path]; !shut {
			m.blocked[path] = conflict
		}
	}
	for _, x := range all {
		if err := m.unbuild(x); err != nil {
			return err
		}
		x.done, x.withheld, x.outcome, x.chosen, x.conflict = true, true, outcome{}, 0, conflict
	}
	return nil
}

// reportCollision reports the conflict of two files that would have the same path in the merged tree.
func (m *merger) reportCollision(a, b *entry) error {
	path := a.outcome.path
	if b.on[mine].path == path && a.on[mine].path != path || a.on[real].path == path && b.on[real].path != path {
		a, b = b, a // a: the entry of mine
	}
	did := func(t *entry, side int) string {
		if was := t.on[base]; was.node != nil && was.path != path {
			return sideDid(side, "renamed "+quote(was.path)+" to it")
		}
		return sideDid(side, "added it")
	}
	moved := 0
	for _, t := range []*entry{a, b} {
		if was := t.on[base]; was.node != nil && was.path != path {
			moved++
		}
	}
	c := Conflict{
		Path: path, Kind: []Kind{AddAdd, RenameAdd, RenameRename}[moved],
		Base: a.on[base].node, Mine: a.on[mine].node, Real: b.on[real].node,
		Why: did(a, mine) + ", " + did(b, real),
	}
	if a.on[base].node == nil {
		c.Base, c.BasePath = b.on[base].node, b.on[base].path
	} else {
		c.BasePath = a.on[base].path
	}
	if s := a.on[mine]; s.path != path {
		c.MinePath = s.path
	}
	if s := b.on[real]; s.path != path {
		c.RealPath = s.path
	}
	var more []string
	for _, t := range []*entry{a, b} {
		for _, s := range t.on {
			more = append(more, s.path)
		}
	}
	return m.resolve(a, c, more...)
}

// ensureParents makes sure that the parent of each file is a directory of the merged tree. taken has the file
// at each path of that tree. changed is true if it changed how a file will be in it.
func (m *merger) ensureParents(taken map[string]*entry) (changed bool, err error) {
	moved := false
	for _, t := range m.entries.all {
		if err := m.interrupted(t); err != nil {
			return false, err
		}
		if t.withheld {
			if d := m.obstacle(t, taken); d != nil {
				return true, m.withhold(d, t.conflict)
			}
		}
		changed, follows, err := m.ensureParent(t, taken)
		if changed || err != nil {
			return changed, err
		}
		moved = moved || follows
	}
	return moved, nil
}

// ensureParent handles a file whose parent is missing from the merged tree or is no directory there. taken has the
// file at each path of that tree. changed is true if it changed how another file will be in that tree; moved is true
// if the file moved along with its parent.
func (m *merger) ensureParent(t *entry, taken map[string]*entry) (changed, moved bool, err error) {
	path := t.outcome.path
	if t.withheld {
		path = t.on[real].path
	}
	if path == "" || path == "." || !t.withheld && t.outcome.node == nil {
		return false, false, nil
	}
	dir := parent(path)
	d := taken[dir]
	switch {
	case dir == ".":
	case d == nil && m.followMove(t):
		return false, true, m.copyMoved(t)
	case d == nil:
		changed, err = m.missingParent(t, dir)
	case d.withheld && !d.isDir(real):
		changed, err = true, m.withhold(t, d.conflict)
	case !d.withheld && t.withheld && !d.outcome.node.IsDir(): // d depends on the answer, too
		changed, err = true, m.withhold(d, t.conflict)
	case !d.withheld && !d.outcome.node.IsDir():
		changed, err = true, m.report(d, Directory, "the merge would make it a "+diff.TypeName(d.outcome.node.Mode)+", but it contains "+quote(path))
	}
	return changed, false, err
}

// obstacle returns a file of the merged tree, no directory, at a path where the sandbox has a parent directory of t,
// which has an open conflict; nil for none. taken has the file at each path of that tree. An answer that later takes
// the sandbox's version of t would replace that file.
func (m *merger) obstacle(t *entry, taken map[string]*entry) *entry {
	if !t.has(mine) {
		return nil
	}
	for at := parent(t.on[mine].path); at != "."; at = parent(at) {
		if d := taken[at]; d != nil && !d.withheld && !d.outcome.node.IsDir() {
			return d
		}
	}
	return nil
}

// followMove moves a file that the answer to a conflict took from one side (sandbox or real tree) if the
// other side renamed a directory above it. It reports whether it did.
func (m *merger) followMove(t *entry) bool {
	if t.withheld || t.chosen == 0 || t.outcome.path != t.on[t.chosen].path {
		return false
	}
	for _, side := range []int{real, mine} {
		if d := m.entries.at[side][parent(t.outcome.path)]; d != nil && d.isDir(side) && d.outcome.node == nil {
			return false // the parent can be restored instead: see missingParent
		}
	}
	path := t.outcome.path
	t.outcome.path = m.entries.follow(other(t.chosen), path)
	return t.outcome.path != path
}

// missingParent handles a file whose parent dir is missing from the merged tree: it restores the parent,
// moves the file, or reports a conflict. changed is true if it did so. A parent that nobody changed exists,
// although there is no entry for it.
func (m *merger) missingParent(t *entry, dir string) (changed bool, err error) {
	for _, side := range []int{real, mine} {
		d := m.entries.at[side][dir]
		if d == nil || !d.isDir(side) || d.outcome.node != nil || d.withheld {
			continue
		}
		if t.withheld || t.chosen != 0 {
			d.outcome = d.asOn(side) // a withheld or chosen entry needs it
			return true, nil
		}
		return true, m.report(d, lostBy(other(side)), sideDid(other(side), "deleted it")+", "+sideDid(side, "needs it for "+quote(t.outcome.path)))
	}
	if t.withheld {
		return false, nil
	}
	for _, side := range []int{mine, real} {
		// An answer cancelled the move of its parent directory.
		if s := t.on[side]; !t.has(base) && !t.has(other(side)) && t.outcome.path != s.path {
			err := m.unbuild(t)
			t.outcome = t.asOn(side)
			return true, err
		}
	}
	for tree := range m.entries.at {
		if m.entries.at[tree][dir] != nil {
			return true, m.report(t, RenameRename, "both sides renamed directories, and no "+quote(dir)+" is left")
		}
	}
	return false, nil
}
