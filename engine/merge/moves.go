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
	for _, r := range found {
		m.ends[r.From], m.ends[r.To] = r.To, r.From
	}
	return m.ends, nil
}

// withOtherEnds extends a conflict over renames: if it covers the old or the new path of a file that the
// sandbox renamed, it also covers the other path. It returns all and places, the entries and paths of the
// conflict, with those added.
func (m *merger) withOtherEnds(t *entry, c *Conflict, all []*entry, places []string) ([]*entry, []string, error) {
	if c.Alone {
		return all, places, nil
	}
	ends, err := m.otherEnds()
	if err != nil || len(ends) == 0 {
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
					more = append(more, to)
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
	if len(all) > own {
		var also []string
		for _, x := range all {
			also = append(also, x.on[mine].path, x.on[real].path)
		}
		c.addPaths(also)
	}
	return all, places, nil
}
