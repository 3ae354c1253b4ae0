package reconcile

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// compareEach finds how the sandbox and the real tree each differ from the base, where no exact list of real changes
// exists. It compares only paths that the sandbox has changed, all in directories that it has deleted, and the new
// paths of files that it has deleted. It fills in m.in.Mine, Real and Unknown.
func (m *partMerge) compareEach(ctx context.Context) error {
	m.in.Unknown = map[string]string{}
	listed := map[string]bool{}
	for i := range m.Part.Changes {
		if err := m.interrupted(ctx); err != nil {
			return err
		}
		c := m.Part.Changes[i]
		listed[c.Path] = true
		if err := m.compareOne(ctx, c); err != nil {
			return err
		}
	}
	if err := cmp.Or(m.addNewInDeleted(ctx, listed), m.addRenamed(ctx, listed)); err != nil {
		return err
	}
	baseline.SortChanges(m.in.Mine)
	baseline.SortChanges(m.in.Real)
	return nil
}

// compareOne adds a change c of the sandbox to m.in.Mine, and the real change at its path to m.in.Real. If the
// original there is unknown, it adds the reason to m.in.Unknown.
func (m *partMerge) compareOne(ctx context.Context, c diff.Change) error {
	real := m.seen[c.Path]
	own := m.path == m.Part.Root && !m.Part.Frozen // c is the change from the real tree
	if m.path != m.Part.Root {
		if err := m.forgetReset(ctx, c.Path, real); err != nil {
			return errs.Wrap("reading", m.base.Abs(c.Path), err)
		}
	}
	if own && m.asPromoted(c.Path, real) {
		m.in.Mine = append(m.in.Mine, c)
		return nil
	}
	base, fresh, why, err := m.base.At(c.Path)
	if errors.Is(err, fs.ErrPermission) {
		why, err = "no permission to read it", nil
	}
	switch {
	case err != nil:
		return errs.Wrap("reading", m.base.Abs(c.Path), err)
	case why != "":
		m.addUnknown(c, own, why)
		return nil
	case own && (fresh || sameNode(base, real) && base != nil && baseline.SameAttributes(base, real)):
		m.in.Mine = append(m.in.Mine, c)
		return nil
	}
	return m.reportBoth(ctx, c.Path, base, c.New, real)
}

// forgetReset drops, in memory, an earlier promotion from the merge base at a path where the target no longer has its
// result: somebody may have put the original there again. Only for a target other than the workspace.
func (m *partMerge) forgetReset(ctx context.Context, path string, real *diff.Node) error {
	n := m.base.Baseline.Nodes[m.base.Abs(path)]
	if !n.Promoted || m.asPromoted(path, real) {
		return nil
	}
	since, err := m.base.Between(ctx, path, n.Node, real, m.real)
	if err == nil && since != nil {
		m.base.Baseline.UndoPromotion(m.base.Abs(path))
	}
	return err
}

// addUnknown adds change c at a path of unknown original to m.in.Mine, relative to the real file there, and the
// reason why to m.in.Unknown. own: the base is live and the target the workspace, so c is relative to that already.
func (m *partMerge) addUnknown(c diff.Change, own bool, why string) {
	real := m.seen[c.Path]
	switch {
	case c.Kind == diff.Modified && c.New.Mode.IsDir() && c.Old.Mode.IsDir() && c.What&^diff.Time == 0:
		return // a directory on both sides; its time does not matter
	case own && m.rec.Ephemeral && c.Kind == diff.Added && real == nil:
		m.in.Mine = append(m.in.Mine, c) // no other command has seen the sandbox, and it saw no such file
		return
	case real == nil && c.New == nil:
		return
	case real == nil:
		c.Kind, c.What = diff.Added, 0
	case c.New == nil:
		c.Kind, c.What = diff.Deleted, 0
	case c.Kind != diff.Modified:
		c.Kind, c.What = diff.Modified, diff.Content
	}
	c.Old = real
	m.in.Mine = append(m.in.Mine, c)
	m.in.Unknown[c.Path] = why
}

// addNewInDeleted adds to the real changes the files in directories that the sandbox has deleted or replaced and that
// the sandbox has never had. listed has the sandbox's changed paths.
func (m *partMerge) addNewInDeleted(ctx context.Context, listed map[string]bool) error {
	real := baseline.RootedReader{Root: m.real}
	defer real.Close()
	var walk func(dir string) error
	walk = func(dir string) error {
		in, err := real.Dir(dir)
		if err != nil {
			return baseline.Absence(err)
		}
		list, err := vfs.Entries(int(in.Fd()))
		if err != nil {
			return err
		}
		vfs.SortEntries(list)
		for _, entry := range list {
			if err := m.interrupted(ctx); err != nil {
				return err
			}
			path := dir + "/" + entry.Name
			if listed[path] {
				continue
			}
			n, err := real.Node(path)
			if err != nil {
				return err
			}
			if n == nil {
				continue
			}
			m.seen[path] = n
			m.in.Real = append(m.in.Real, diff.Change{Path: path, Kind: diff.Added, New: n})
			if n.Mode.IsDir() {
				if err := walk(path); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, c := range m.Part.Changes {
		was := m.seen[c.Path]
		if was == nil || !was.Mode.IsDir() || c.New != nil && c.New.Mode.IsDir() {
			continue
		}
		if err := walk(c.Path); err != nil {
			return errs.Wrap("reading", filepath.Join(m.path, c.Path), err)
		}
	}
	return nil
}

// pathsOf returns the set of the changes' paths, without directories of which only the time changed.
func pathsOf(changes []diff.Change) map[string]bool {
	paths := map[string]bool{}
	for _, c := range changes {
		if !c.TimeOnly() {
			paths[c.Path] = true
		}
	}
	return paths
}

// drifted lists, as conflicts, the changes to promote at paths that the real tree changed or moved a file to.
func (p *promotionPart) drifted() []Conflict {
	mine, real := pathsOf(p.in.Mine), pathsOf(p.in.Real)
	var all []Conflict
	for path := range pathsOf(p.Changes) {
		if real[path] || !mine[path] {
			all = append(all, p.conflict(merge.Conflict{Path: path, Kind: kindDrift, Why: "the real tree has changed here since the sandbox was made"}))
		}
	}
	return all
}

// alreadyThere lists the selected paths, those that only matches, at which the real tree already has the sandbox's
// change. Cost: in proportion to the lengths of the paths. Error: ErrInterrupted.
func (p *promotionPart) alreadyThere(ctx context.Context, only *compare.Patterns) (already []string, err error) {
	changed := pathsOf(p.res.Changes)
	var open pathlist.Subtrees
	for i := range p.res.Conflicts {
		open.Add(p.res.Conflicts[i].Paths()...)
	}
	for _, c := range p.in.Mine {
		if err := p.interrupted(ctx); err != nil {
			return nil, err
		}
		same := (c.New == nil) == (p.seen[c.Path] == nil)
		if same && !changed[c.Path] && !c.TimeOnly() && !open.Cover(c.Path) && only.Matches(filepath.Join(p.Part.Root, c.Path)) {
			already = append(already, filepath.Join(p.path, c.Path))
		}
	}
	return already, nil
}

// answeredPaths are the paths of conflicts of a merge for which the user's answer takes the real version.
type answeredPaths struct {
	below pathlist.Subtrees // with all below each
	alone map[string]bool   // directories themselves, without their entries
}

// add adds every path that the answer to a conflict decides.
func (a *answeredPaths) add(c *merge.Conflict) {
	if !c.Alone {
		a.below.Add(c.Paths()...)
		return
	}
	if a.alone == nil {
		a.alone = map[string]bool{}
	}
	for _, path := range c.Paths() {
		a.alone[path] = true
	}
}

// empty reports whether no answer has been added.
func (a *answeredPaths) empty() bool { return len(a.below)+len(a.alone) == 0 }

// cover reports whether an answer has decided about a relative path.
func (a *answeredPaths) cover(path string) bool { return a.alone[path] || a.below.Cover(path) }
