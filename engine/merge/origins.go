package merge

import (
	"context"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Origins returns the old path of each file that the sandbox moved to one of paths or to a path below one, perhaps over
// another file, by its new path. A caller that replaces the file by that of the real tree must restore the old path, or
// the content is at neither. It leaves out files of which the real tree has no unchanged version: their deletion is a
// conflict anyway.
//
// Errors and cost: those of [diff.Renames].
func Origins(ctx context.Context, in Input, paths []string) (map[string]string, error) {
	in.Choose = nil
	m, err := newMerger(ctx, in)
	if err != nil {
		return nil, err
	}
	within := pathSet{}
	for _, path := range paths {
		within.add(path)
	}
	return m.origins(func(c *diff.Change) bool { return within.covers(c.Path) })
}

// overwritten returns the old path of each file that the sandbox moved over another one, by its new path. A conflict
// at the new path then covers the old path, too. Unlike otherEnds it pairs files by a guess that may be wrong: the
// conflict then covers a file that the sandbox only deleted.
func (m *merger) overwritten() (from map[string]string, err error) {
	if m.over == nil {
		m.over, err = m.origins(func(c *diff.Change) bool { return c.Kind == diff.Modified })
	}
	return m.over, err
}

// origins returns, by path, where files came from that the sandbox deleted there and the real tree still has, among the
// files of its changes that match. A deleted file is the origin of another if both are similar, and the other is less
// similar to the real file at its own path. So a file that was only edited has none.
func (m *merger) origins(match func(c *diff.Change) bool) (map[string]string, error) {
	from := map[string]string{}
	moves, edits, err := m.sinceReal(m.in.Mine, func(c *diff.Change) bool {
		if c.Kind == diff.Deleted {
			return isFile(c.Old)
		}
		return isFile(c.New) && (c.Kind == diff.Added || c.What&(diff.Content|diff.Type) != 0) && match(c)
	})
	if err != nil {
		return nil, err
	}
	opt := m.realOptions()
	found, err := diff.Renames(m.ctx, m.in.RealTree, m.in.MineTree, moves, opt)
	if err != nil {
		return nil, fail(".", err)
	}
	for _, r := range found {
		own, err := diff.Renames(m.ctx, m.in.RealTree, m.in.MineTree, edits[r.To], opt)
		if err != nil {
			return nil, fail(".", err)
		}
		if !slices.ContainsFunc(own, func(o diff.Rename) bool { return o.Similarity >= r.Similarity }) {
			from[r.To] = r.From
		}
	}
	return from, nil
}

// realOptions returns the options to compare the real tree with the sandbox's: snapfs's own paths do not count.
func (m *merger) realOptions() diff.Options {
	return diff.Options{Skip: m.in.MineOptions.Skip, OverlayViews: true}
}

// sinceReal lists the changes that may be two ends of a move from the real tree to the sandbox's, among those that
// match: each file that the sandbox deleted and the real tree has not changed, and each file that the sandbox has
// now, as an added one. If the real tree has a file at the path of the latter, edits has the two at that path, as a
// deleted and an added file. The lists are empty if nothing can have moved.
func (m *merger) sinceReal(changes []diff.Change, match func(c *diff.Change) bool) (moves []diff.Change, edits map[string][]diff.Change, err error) {
	deleted, gone := map[string]bool{}, 0
	var touches []snapshot.Candidate
	for i := range changes {
		c := &changes[i]
		if !match(c) || c.Kind == diff.Deleted && !m.unchangedInReal(c.Path) {
			continue
		}
		if deleted[c.Path] = c.Kind == diff.Deleted; deleted[c.Path] {
			gone++
		}
		touches = append(touches, snapshot.Candidate{Path: c.Path})
	}
	if gone == 0 || gone == len(deleted) {
		return nil, nil, nil
	}
	since, err := diff.At(m.ctx, m.in.RealTree, m.in.MineTree, touches, m.realOptions())
	if err != nil {
		return nil, nil, fail(".", err)
	}
	edits = map[string][]diff.Change{}
	for _, c := range since {
		went, listed := deleted[c.Path]
		switch {
		case went && c.Kind == diff.Deleted:
			moves = append(moves, c)
		case listed && !went && c.New != nil:
			now := diff.Change{Path: c.Path, Kind: diff.Added, New: c.New}
			moves = append(moves, now)
			if isFile(c.Old) {
				edits[c.Path] = []diff.Change{{Path: c.Path, Kind: diff.Deleted, Old: c.Old}, now}
			}
		}
	}
	return moves, edits, nil
}
