package merge

import "github.com/snapfs/snapfs/engine/diff"

// fit sees to it that the merged tree is one: no two things at one path, and each in
// a directory. What is left keeps the place that it has in the real tree. Every round
// that finds something answers a conflict, leaves a thing, or keeps a directory, so
// there is a last one.
func (m *merger) fit() error {
	for {
		if err := m.avoid(); err != nil {
			return err
		}
		taken := map[string]*thing{}
		for _, t := range m.things.all {
			if t.left && t.has(real) {
				taken[t.on[real].path] = t
			}
		}
		changed, err := m.collide(taken)
		if err == nil && !changed {
			changed, err = m.house(taken)
		}
		if err != nil || !changed {
			return err
		}
	}
}

// avoid leaves what would come to lie in the place of a conflict.
func (m *merger) avoid() error {
	for _, t := range m.things.all {
		if t.left || t.end.node == nil {
			continue
		}
		if conflict, shut := m.shutBy(t.end.path); shut {
			if err := m.leave(t, conflict); err != nil {
				return err
			}
		}
	}
	return nil
}

// collide finds the paths that two things want, and notes all that are taken.
func (m *merger) collide(taken map[string]*thing) (changed bool, err error) {
	for _, t := range m.things.all {
		if t.left || t.end.node == nil {
			continue
		}
		x := taken[t.end.path]
		switch {
		case x == nil || !x.lies(t.end.path): // not any more
			taken[t.end.path] = t
		case x.left:
			changed, err = true, m.leave(t, x.conflict)
		default:
			if _, shut := m.shutBy(t.end.path); changed && shut {
				continue // by a conflict of this round: the next one leaves both
			}
			changed, err = true, m.clash(t, x)
		}
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// shutBy is the conflict in whose place a path lies.
func (m *merger) shutBy(path string) (conflict int, shut bool) {
	for at := path; at != "." && !shut; at = parent(at) {
		conflict, shut = m.shut[at]
	}
	return conflict, shut
}

// leave makes a thing part of a conflict that is in its way, with all that lies at
// its places.
func (m *merger) leave(t *thing, conflict int) error {
	all, places := m.covered(t, []string{t.on[base].path, t.on[mine].path, t.on[real].path})
	c := &m.result.Conflicts[conflict]
	c.Several = true
	c.about(all)
	return m.leaveAll(all, places, conflict)
}

// leaveAll leaves the things of a conflict, and keeps others away from its places.
func (m *merger) leaveAll(all []*thing, places []string, conflict int) error {
	for _, path := range places {
		if _, shut := m.shut[path]; !shut {
			m.shut[path] = conflict
		}
	}
	for _, x := range all {
		if err := m.unbuild(x); err != nil {
			return err
		}
		x.done, x.left, x.end, x.chosen, x.conflict = true, true, end{}, 0, conflict
	}
	return nil
}

// clash raises the conflict of two things that want one path.
func (m *merger) clash(a, b *thing) error {
	path := a.end.path
	if b.on[mine].path == path && a.on[mine].path != path || a.on[real].path == path && b.on[real].path != path {
		a, b = b, a // a is that of mine
	}
	did := func(t *thing, side int) string {
		if was := t.on[base]; was.node != nil && was.path != path {
			return says(side, "renamed "+quote(was.path)+" to it")
		}
		return says(side, "added it")
	}
	moved := 0
	for _, t := range []*thing{a, b} {
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
	for _, t := range []*thing{a, b} {
		for _, s := range t.on {
			more = append(more, s.path)
		}
	}
	return m.settle(a, c, more...)
}

// house finds a thing whose directory is not there.
func (m *merger) house(taken map[string]*thing) (changed bool, err error) {
	moved := false
	for _, t := range m.things.all {
		path := t.end.path
		if t.left {
			path = t.on[real].path
			if d := m.inTheWay(t, taken); d != nil {
				return true, m.leave(d, t.conflict)
			}
		}
		if path == "" || path == "." || !t.left && t.end.node == nil {
			continue
		}
		dir := parent(path)
		d := taken[dir]
		switch {
		case dir == ".":
		case d == nil && m.follows(t):
			moved = true
			err = m.carry(t)
		case d == nil:
			changed, err = m.homeless(t, dir)
		case d.left && !d.isDir(real):
			changed, err = true, m.leave(t, d.conflict)
		case !d.left && t.left && !isDir(d.end.node): // it has to wait for the answer
			changed, err = true, m.leave(d, t.conflict)
		case !d.left && !isDir(d.end.node):
			changed, err = true, m.raise(d, Directory, "it would be a "+diff.TypeName(d.end.node.Mode)+", but "+quote(path)+" lies in it")
		}
		if changed || err != nil {
			return changed, err
		}
	}
	return moved, nil
}

// inTheWay is what the merged tree has where the sandbox has a directory that something
// left lies in: who lays the sandbox's version there would take it away.
func (m *merger) inTheWay(t *thing, taken map[string]*thing) *thing {
	if !t.has(mine) {
		return nil
	}
	for at := parent(t.on[mine].path); at != "."; at = parent(at) {
		if d := taken[at]; d != nil && !d.left && !isDir(d.end.node) {
			return d
		}
	}
	return nil
}

// follows has what an answer took of a side go to where the other side has moved its
// directory.
func (m *merger) follows(t *thing) bool {
	if t.left || t.chosen == 0 || t.end.path != t.on[t.chosen].path {
		return false
	}
	for _, side := range []int{real, mine} {
		if d := m.things.at[side][parent(t.end.path)]; d != nil && d.isDir(side) && d.end.node == nil {
			return false // it can stay, see homeless
		}
	}
	path := t.end.path
	t.end.path = m.things.follow(other(t.chosen), path)
	return t.end.path != path
}

// homeless handles a thing in a directory that the merged tree does not have. A
// directory that no change speaks of is there.
func (m *merger) homeless(t *thing, dir string) (changed bool, err error) {
	for _, side := range []int{real, mine} {
		d := m.things.at[side][dir]
		if d == nil || !d.isDir(side) || d.end.node != nil || d.left {
			continue
		}
		if t.left || t.chosen != 0 {
			d.end = d.as(side) // it is needed for what stays, or was asked for
			return true, nil
		}
		return true, m.raise(d, lostBy(other(side)), says(other(side), "deleted it")+", "+says(side, "needs it for "+quote(t.end.path)))
	}
	if t.left {
		return false, nil
	}
	for _, side := range []int{mine, real} {
		// Its directory was to move, and did not, because of an answer.
		if s := t.on[side]; !t.has(base) && !t.has(other(side)) && t.end.path != s.path {
			err := m.unbuild(t)
			t.end = t.as(side)
			return true, err
		}
	}
	for tree := range m.things.at {
		if m.things.at[tree][dir] != nil {
			return true, m.raise(t, RenameRename, "both sides renamed directories so that "+quote(dir)+" is nowhere")
		}
	}
	return false, nil
}
