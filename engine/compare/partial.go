package compare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// A place is what is looked at of a tree at once: a directory alone, or, with
// layers, the whole tree as far as a sandbox's own layers hold it.
type place struct {
	tree, dir string
	layers    bool
}

// A state is a state of a tree, and how it is reached.
type state struct {
	b    snapshot.Backend
	view snapshot.View
	real bool // as it is now, with what is mounted in it
}

// errTwoLayered: of two states that both have layers, what one has in a layer the
// other may have in its base.
var errTwoLayered = errors.New("both states have layers")

// open opens the place in each of states, for reading.
func (p place) open(ctx context.Context, states ...state) (dirs []*os.File, err error) {
	layered := 0
	mounts := make([]isolate.Mount, len(states))
	for i, s := range states {
		v := s.view
		switch {
		case v.Overlay != nil && p.layers:
			v = hostfs.WithoutBase(v)
			layered++
		case p.dir != p.tree && !s.real:
			if v, err = hostfs.ViewSubtree(ctx, s.b, v, p.tree, p.dir, false); err != nil {
				return nil, err
			}
		}
		mounts[i] = hostfs.MountOf("/", v)
	}
	if layered > 1 {
		return nil, errTwoLayered
	}
	at := p.dir
	if p.layers {
		at = "" // they have no mounts
	}
	return openStates(ctx, at, states, mounts, p.dir)
}

// openStates opens what is mounted of each, and of the real tree the directory.
func openStates(ctx context.Context, at string, states []state, mounts []isolate.Mount, dir string) ([]*os.File, error) {
	dirs := make([]*os.File, len(states))
	var err error
	var rest []isolate.Mount
	for i, s := range states {
		if s.real && err == nil {
			dirs[i], err = os.Open(dir)
		} else if !s.real {
			rest = append(rest, mounts[i])
		}
	}
	var opened []*os.File
	if err == nil && len(rest) > 0 {
		opened, err = hostfs.OpenViews(ctx, isolate.OpenViews, at, rest...)
	}
	for i, s := range states {
		switch {
		case err == nil && !s.real:
			dirs[i], opened = opened[0], opened[1:]
		case err != nil && dirs[i] != nil:
			dirs[i].Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return dirs, nil
}

// A compareAtFunc compares two states of a tree at a place. After an error, and without
// changes, nothing is open.
type compareAtFunc func(at place, touches []snapshot.Candidate, walk bool) (Part, error)

// compareIn compares two states of a tree: as a whole, or, where something is mounted
// beneath it that forbids that, each directory alone that has nothing mounted
// beneath it. Of the workspace all is looked at, as the sandbox has it, or there is
// an error; what cannot be looked at elsewhere is told.
func (cm *Comparer) compareIn(workspace, tree string, touches []snapshot.Candidate, walk bool, look compareAtFunc) ([]Part, error) {
	for tries := 1; ; tries++ {
		p, err := look(place{tree: tree, dir: tree}, touches, walk)
		if err == nil {
			return appendPart(nil, p), nil
		}
		var m *hostfs.MountedError
		if !errors.As(err, &m) || walk || tries == hostfs.MaxAttempts {
			return nil, err
		}
		env, err := hostfs.MountsNow()
		if err != nil {
			return nil, err
		}
		if !env.MountedBeneath(tree) {
			continue // by now
		}
		parts, err := cm.comparePartial(env, workspace, tree, touches, look)
		if err == nil || !errors.As(err, &m) || env.MountedBeneath(workspace) {
			return parts, err
		}
	}
}

func appendPart(parts []Part, p Part) []Part {
	if len(p.Changes) == 0 {
		return parts
	}
	return append(parts, p)
}

// comparePartial looks at a tree place by place.
func (cm *Comparer) comparePartial(env *hostfs.Environment, workspace, tree string, touches []snapshot.Candidate, look compareAtFunc) (parts []Part, err error) {
	defer func() {
		if err != nil {
			(&Changes{Parts: parts}).Close()
			parts = nil
		}
	}()
	inWorkspace := func(path string) bool { return hostfs.Within(path, workspace) }
	if list := env.MountsBeneath(workspace); len(list) > 0 && slices.ContainsFunc(touches, func(t snapshot.Candidate) bool { return inWorkspace(filepath.Join(tree, t.Path)) }) {
		return nil, hostfs.MountedSince("comparing", workspace, list)
	}
	places, missed := divide(env, tree, touches)
	for _, at := range places {
		p, err := look(at.place, at.candidates, false)
		if errors.Is(err, errTwoLayered) || at.dir != tree && errors.Is(err, errs.ErrNotFound) {
			for _, t := range at.candidates {
				missed = append(missed, filepath.Join(at.dir, t.Path))
			}
			continue
		}
		if err != nil {
			return parts, err
		}
		parts = appendPart(parts, p)
	}
	if len(missed) == 0 {
		return parts, nil
	}
	if slices.ContainsFunc(missed, inWorkspace) {
		return parts, hostfs.MountedSince("comparing", tree, env.MountsBeneath(tree))
	}
	cm.notice("what a sandbox has changed at " + hostfs.Several(missed) + " is not looked at, because of what is mounted there: " + hostfs.Several(env.MountsBeneath(tree)))
	return parts, nil
}

// placed are touches at a place, relative to it.
type placeCandidates struct {
	place
	candidates []snapshot.Candidate
}

// divide sorts touched places of a tree by the directories to look at them in.
// Those right in a directory with mounts beneath it, and directories that were
// replaced or deleted, are looked at in the layers. missed are those on, or
// beneath, a mount point.
func divide(e *hostfs.Environment, tree string, touches []snapshot.Candidate) (places []placeCandidates, missed []string) {
	direct := placeCandidates{place: place{tree: tree, dir: tree, layers: true}}
	at := map[string]int{}
	for _, t := range touches {
		abs := filepath.Join(tree, t.Path)
		dir := e.Clear(tree, abs)
		switch {
		case e.Over(tree, abs), dir == "" && t.Tree && e.MountedBeneath(abs):
			missed = append(missed, abs)
		case dir == "" && e.MountedBeneath(abs):
			// Only its attributes can differ, and the kernel shows them to nobody.
		case dir == "" || dir == abs && t.Tree:
			direct.candidates = append(direct.candidates, t)
		default:
			i, known := at[dir]
			if !known {
				i = len(places)
				at[dir] = i
				places = append(places, placeCandidates{place: place{tree: tree, dir: dir}})
			}
			t.Path, _ = filepath.Rel(dir, abs) // beneath it
			places[i].candidates = append(places[i].candidates, t)
		}
	}
	places = slices.DeleteFunc(places, func(p placeCandidates) bool { return direct.covers(p.dir) })
	if len(direct.candidates) > 0 {
		places = append(places, direct)
	}
	return places, missed
}

// has reports whether a directory is among the trees that are looked at whole.
func (p *placeCandidates) covers(dir string) bool {
	return slices.ContainsFunc(p.candidates, func(t snapshot.Candidate) bool { return t.Tree && hostfs.Within(dir, filepath.Join(p.tree, t.Path)) })
}
