package promote

import (
	"context"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/internal/vfs"
)

// needed reports whether a change must be made, where real is the target's node at its path, nil for none. It
// notes in p a path that has drifted, and one that already has the wanted state.
func (p *planner) needed(ctx context.Context, c diff.Change, real *diff.Node) (todo bool, err error) {
	switch {
	case c.Kind == diff.Added && real == nil:
		return true, nil
	case c.Kind == diff.Deleted && real == nil:
		p.already = append(p.already, c.Path)
		return false, nil
	case real == nil && p.knownDeleted(c.Path):
		return true, nil
	case real == nil:
		p.drift(c.Path, "deleted since")
		return false, nil
	case p.known(c.Path, real):
		if c.New == nil {
			return true, nil
		}
		same, err := p.same(ctx, c, real, true)
		if same {
			p.already = append(p.already, c.Path)
			if c.New.Shared() {
				p.kept, p.linked = append(p.kept, &op{path: c.Path, change: c, found: real}), true
			}
		}
		return !same, err
	}
	why := "created since"
	if c.Kind != diff.Added {
		if why, err = p.driftOf(ctx, c, real); err != nil || why == "" {
			return err == nil, err
		}
	}
	same := false
	if c.New != nil {
		same, err = p.same(ctx, c, real, false)
	}
	if same {
		p.already = append(p.already, c.Path)
	} else if err == nil {
		p.drift(c.Path, why)
	}
	return false, err
}

// same reports whether the real file already has the metadata and content that the change c would give it, so
// that nothing needs to be done; with times, also its modification time.
func (p *planner) same(ctx context.Context, c diff.Change, real *diff.Node, times bool) (bool, error) {
	switch {
	case !nodes.SameMetadata(c.New, real, times):
		return false, nil
	case times && real.IsDir() && c.What&diff.Time != 0:
		return c.New.MTime.Equal(real.MTime), nil
	case real.Mode.IsRegular():
		from, path := p.from.At(c.Path)
		return nodes.SameContent(ctx, from, path, p.t.Root, c.Path)
	}
	return true, nil
}

func (p *planner) known(path string, real *diff.Node) bool {
	s, ok := p.base.Known[path]
	return ok && s.Ino == real.Ino && s.CTime.Equal(real.CTime)
}

// knownDeleted reports whether an earlier promotion of the same sandbox deleted a path, so that its absence
// is no drift.
func (p *planner) knownDeleted(path string) bool {
	s, ok := p.base.Known[path]
	return ok && s.Ino == 0 && s.CTime.IsZero()
}

// driftOf returns in words how a real file differs from the file that the base had at the change's path, or
// "" if it has not drifted.
func (p *planner) driftOf(ctx context.Context, c diff.Change, real *diff.Node) (string, error) {
	switch {
	case c.Old.Mode.Type() != real.Mode.Type():
		return "its type has changed since", nil
	case !nodes.SameMetadata(c.Old, real, true):
		return "changed since", nil
	case vfs.ChangedBefore(real.CTime, p.base.Taken):
		dir, _ := diff.Split(c.Path)
		return p.dirDrift(dir), nil
	case real.IsDir():
		// Adding or removing a name changes a directory's change time, too.
		if !p.base.Frozen && c.What&(diff.Mode|diff.Owner|diff.Xattrs) != 0 {
			return "changed since", nil
		}
		return "", nil
	case !p.base.Frozen:
		return "changed since", nil
	case !real.Mode.IsRegular():
		return "", nil
	case p.base.Root == nil:
		return "changed since", nil
	}
	same, err := nodes.SameContent(ctx, p.base.Root, c.Path, p.t.Root, c.Path)
	if err != nil || same {
		return "", err
	}
	return "its content has been changed since", nil
}

// dirDrift returns why files in a directory may not be those that the sandbox saw, since its base is the real
// tree itself: the directory was created or moved there since; or "". Its change time proves a move only if
// no name in it has changed since.
func (p *planner) dirDrift(dir string) string {
	if p.base.Frozen || dir == "." {
		return ""
	}
	if why, ok := p.dirDrifts[dir]; ok {
		return why
	}
	up, _ := diff.Split(dir)
	why := p.dirDrift(up)
	st, err := p.real.Stat(dir)
	switch late := func(t vfs.Timestamp) bool { return !t.Time().Before(p.base.Taken) }; {
	case why != "" || err != nil:
	case p.known(dir, &diff.Node{Ino: st.Ino, CTime: st.CTime.Time()}):
	case late(st.BTime) && st.BTime != (vfs.Timestamp{}):
		why = "its directory has been replaced since"
	case late(st.CTime) && !late(st.MTime):
		why = "its directory has been moved or changed since"
	}
	p.dirDrifts[dir] = why
	return why
}
