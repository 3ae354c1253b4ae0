package merge

import "github.com/snapfs/snapfs/engine/diff"

// otherEnds returns the files that the sandbox renamed: it maps the old path to the new one and the new path
// to the old one. It includes renames that the merge itself treats as a deletion and an addition: those on a
// live base, and those to a path whose original is unknown. An answer to a conflict at one end takes both
// ends; otherwise a file whose new path is answered with the real tree's version would end at neither path.
//
// Cost: that of [diff.Renames], once, and only if a conflict is answered or reported.
func (m *merger) otherEnds() (map[string]string, error) {
	if m.ends != nil {
		return m.ends, nil
	}
	m.ends = map[string]string{}
	old := m.in.OldTree
	if old == nil {
		old = m.in.BaseTree
	}
	changes := make([]diff.Change, 0, len(m.in.Mine))
	for _, c := range m.in.Mine {
		if _, unknown := m.in.Unknown[c.Path]; unknown && c.Kind == diff.Modified {
			// The old node is what the real tree has there now, and not what the sandbox replaced.
			c = diff.Change{Path: c.Path, Kind: diff.Added, New: c.New}
		}
		changes = append(changes, c)
	}
	found, err := diff.Renames(m.ctx, old, m.in.MineTree, changes, m.in.MineOptions)
	if err != nil {
		return nil, fail(".", err)
	}
	m.addEnds(found)
	return m.ends, m.endsInReal(changes)
}

// addEnds adds renames of the sandbox to m.ends, which maps the old path of a renamed file to the new one, and the
// new to the old.
func (m *merger) addEnds(renames []diff.Rename) {
	for _, r := range renames {
		m.ends[r.From], m.ends[r.To] = r.To, r.From
	}
}

// endsInReal adds to m.ends, the renames by path, those of files whose version in the base OldTree does not have,
// such as those that the sandbox promoted before it renamed them. It looks for that version in the real tree, which
// still has it where it has not changed the file; only there does the merge delete the old path without a conflict.
// changes are the sandbox's.
func (m *merger) endsInReal(changes []diff.Change) error {
	moves, _, err := m.sinceReal(changes, func(c *diff.Change) bool { return m.ends[c.Path] == "" && c.Kind != diff.Modified })
	if err != nil {
		return err
	}
	found, err := diff.Renames(m.ctx, m.in.RealTree, m.in.MineTree, moves, m.realOptions())
	m.addEnds(found)
	return fail(".", err)
}

// unchangedInReal reports whether the real tree has the base's version of the file at a path, so that the merge takes
// the sandbox's deletion of it.
func (m *merger) unchangedInReal(path string) bool {
	t := m.entries.at[base][path]
	return t != nil && t.on[real].path == path && t.has(real) && !t.changed(real)
}

// withOtherEnds extends a conflict over renames: if it covers the old or the new path of a file that the
// sandbox renamed, it also covers the other path. It returns all and places, the entries and paths of the
// conflict, with those added.
func (m *merger) withOtherEnds(t *entry, c *Conflict, all []*entry, places []string) ([]*entry, []string, error) {
	if c.Alone {
		return all, places, nil
	}
	ends, err := m.otherEnds()
	if err != nil {
		return all, places, err
	}
	within, own := pathSet{}, len(all)
	for _, path := range places {
		within.add(path)
	}
	for {
		var more []string
		for _, x := range all {
			for _, s := range x.on {
				if to := ends[s.path]; to != "" && within.add(to) {
					more = append(more, m.inPlace(to)...)
				}
			}
		}
		if len(more) == 0 {
			break
		}
		all, places = m.affected(t, append(places, more...))
		for _, path := range places {
			within.add(path)
		}
	}
	over, err := m.overwritten()
	if err != nil {
		return all, places, err
	}
	var from []string
	for _, x := range all {
		if old := over[x.on[mine].path]; old != "" && within.add(old) {
			from = append(from, m.inPlace(old)...)
		}
	}
	if len(from) > 0 {
		all, places = m.affected(t, append(places, from...))
	}
	if len(all) > own {
		var also []string
		for _, x := range all {
			also = append(also, x.on[mine].path, x.on[real].path)
		}
		c.addPaths(also)
	}
	return all, places, nil
}

// inPlace returns path, and those of the directories above it that the sandbox has replaced by something else. A
// conflict that covers path covers these, too: the real file can stay at path only if the real directories above it
// stay.
func (m *merger) inPlace(path string) []string {
	all := []string{path}
	for at := parent(path); at != "." && at != ""; at = parent(at) {
		if t := m.entries.at[mine][at]; t != nil && t.has(mine) && !t.isDir(mine) {
			all = append(all, at)
		}
	}
	return all
}
