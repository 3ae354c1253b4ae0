package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

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
			v = withoutBase(v)
			layered++
		case p.dir != p.tree && !s.real:
			if v, err = narrow(ctx, s.b, v, p.tree, p.dir, false); err != nil {
				return nil, err
			}
		}
		mounts[i] = mountOf("/", v)
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
		opened, err = openViews(ctx, isolate.OpenViews, at, rest...)
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

// withoutBase is a view of what layers hold alone: right for what they hold, and
// without names that only the tree below them has.
func withoutBase(v snapshot.View) snapshot.View {
	if v.Overlay == nil {
		return v
	}
	lower := slices.Clone(v.Overlay.Lower)
	if len(v.Overlay.Base) == 0 {
		lower = lower[:len(lower)-1]
	}
	if v.Overlay.Upper != "" {
		lower = slices.Insert(lower, 0, v.Overlay.Upper)
	}
	if len(lower) == 1 {
		return snapshot.View{Path: lower[0]}
	}
	return snapshot.View{Overlay: &snapshot.Overlay{Lower: lower, UserXattr: v.Overlay.UserXattr}}
}

// A lookAt compares two states of a tree at a place. After an error, and without
// changes, nothing is open.
type lookAt func(at place, touches []snapshot.Touch, walk bool) (Part, error)

// lookIn compares two states of a tree: as a whole, or, where something is mounted
// beneath it that forbids that, each directory alone that has nothing mounted
// beneath it. Of the workspace all is looked at, as the sandbox has it, or there is
// an error; what cannot be looked at elsewhere is told.
func (e *Engine) lookIn(workspace, tree string, touches []snapshot.Touch, walk bool, look lookAt) ([]Part, error) {
	for tries := 1; ; tries++ {
		p, err := look(place{tree: tree, dir: tree}, touches, walk)
		if err == nil {
			return appendPart(nil, p), nil
		}
		var m *mountedError
		if !errors.As(err, &m) || walk || tries == mostAttempts {
			return nil, err
		}
		env, err := mountsNow()
		if err != nil {
			return nil, err
		}
		if !env.mountedBeneath(tree) {
			continue // by now
		}
		parts, err := e.lookApart(env, workspace, tree, touches, look)
		if err == nil || !errors.As(err, &m) || env.mountedBeneath(workspace) {
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

// lookApart looks at a tree place by place.
func (e *Engine) lookApart(env *environment, workspace, tree string, touches []snapshot.Touch, look lookAt) (parts []Part, err error) {
	defer func() {
		if err != nil {
			(&Changes{Parts: parts}).Close()
			parts = nil
		}
	}()
	inWorkspace := func(path string) bool { return within(path, workspace) }
	if list := env.mountsBeneath(workspace); len(list) > 0 && slices.ContainsFunc(touches, func(t snapshot.Touch) bool { return inWorkspace(filepath.Join(tree, t.Path)) }) {
		return nil, mountedSince("comparing", workspace, list)
	}
	places, missed := divide(env, tree, touches)
	for _, at := range places {
		p, err := look(at.place, at.touches, false)
		if errors.Is(err, errTwoLayered) || at.dir != tree && errors.Is(err, errs.ErrNotFound) {
			for _, t := range at.touches {
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
		return parts, mountedSince("comparing", tree, env.mountsBeneath(tree))
	}
	e.notice("what a sandbox has changed at " + several(missed) + " is not looked at, because of what is mounted there: " + several(env.mountsBeneath(tree)))
	return parts, nil
}

// placed are touches at a place, relative to it.
type placed struct {
	place
	touches []snapshot.Touch
}

// divide sorts touched places of a tree by the directories to look at them in.
// Those right in a directory with mounts beneath it, and directories that were
// replaced or deleted, are looked at in the layers. missed are those on, or
// beneath, a mount point.
func divide(e *environment, tree string, touches []snapshot.Touch) (places []placed, missed []string) {
	direct := placed{place: place{tree: tree, dir: tree, layers: true}}
	at := map[string]int{}
	for _, t := range touches {
		abs := filepath.Join(tree, t.Path)
		dir := e.clear(tree, abs)
		switch {
		case e.over(tree, abs), dir == "" && t.Tree && e.mountedBeneath(abs):
			missed = append(missed, abs)
		case dir == "" && e.mountedBeneath(abs):
			// Only its attributes can differ, and the kernel shows them to nobody.
		case dir == "" || dir == abs && t.Tree:
			direct.touches = append(direct.touches, t)
		default:
			i, known := at[dir]
			if !known {
				i = len(places)
				at[dir] = i
				places = append(places, placed{place: place{tree: tree, dir: dir}})
			}
			t.Path, _ = filepath.Rel(dir, abs) // beneath it
			places[i].touches = append(places[i].touches, t)
		}
	}
	places = slices.DeleteFunc(places, func(p placed) bool { return direct.has(p.dir) })
	if len(direct.touches) > 0 {
		places = append(places, direct)
	}
	return places, missed
}

// has reports whether a directory is among the trees that are looked at whole.
func (p *placed) has(dir string) bool {
	return slices.ContainsFunc(p.touches, func(t snapshot.Touch) bool { return t.Tree && within(dir, filepath.Join(p.tree, t.Path)) })
}

// over reports whether a path of a tree is, or lies beneath, a place where
// something is mounted.
func (e *environment) over(tree, path string) bool {
	for _, m := range e.mounts {
		if m.Path != tree && within(m.Path, tree) && within(path, m.Path) {
			return true
		}
	}
	return false
}
