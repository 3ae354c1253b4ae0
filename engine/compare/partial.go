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

// A place is the part of a tree that one comparison covers, when mounts forbid comparing the tree as a whole.
// It is the directory dir or, with layers set, only the files in the sandbox's overlay layers, without those
// of the live lower.
type place struct {
	tree, dir string
	layers    bool
}

// A state is one of the two states of a tree that a comparison opens: a snapshot or fork (a view of the
// backend b), or the real tree with its mounts if real is set.
type state struct {
	b    snapshot.Backend
	view snapshot.View
	real bool // the real tree, with its mounts
}

// errTwoLayered means that two states of a tree cannot be compared by their overlay layers alone, because both have
// layers: a path in a layer of one state may be in the base of the other.
var errTwoLayered = errors.New("both states have layers")

// open opens p, a directory of a tree, in each of the states (such as snapshots) for reading; the caller
// closes the directories. Error: errTwoLayered.
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
		at = "" // layers contain no mount points
	}
	return openStates(ctx, at, states, mounts, p.dir)
}

// openStates opens a directory for each state i: the mount mounts[i], or for the real tree dir itself. at is
// the path of the tree. The caller closes the directories. After an error all are closed.
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

// A compareAtFunc is a function that compares two states of a tree in one part of it, at: only the paths
// touches, or everything if walk is set. If it returns an error or no changes, it has closed all files that
// it opened.
type compareAtFunc func(at place, touches []snapshot.Candidate, walk bool) (Part, error)

// compareIn compares two states of a tree with the function look, first as a whole: only the paths touches, or
// everything if walk is set. If mounts in the tree forbid that, it compares each directory without mounts separately.
// It returns an error if part of the workspace cannot be compared, and reports other paths that it left out as a
// notice.
func (cm *Comparer) compareIn(workspace, tree string, touches []snapshot.Candidate, walk bool, look compareAtFunc) ([]Part, error) {
	for tries := 1; ; tries++ {
		p, err := look(place{tree: tree, dir: tree}, touches, walk)
		if err == nil {
			return appendPart(nil, p), nil
		}
		if !errors.Is(err, hostfs.ErrMounted) || walk || tries == hostfs.MaxAttempts {
			return nil, err
		}
		env, err := hostfs.MountsNow()
		if err != nil {
			return nil, err
		}
		if !env.HasMountsBelow(tree) {
			continue // unmounted meanwhile
		}
		parts, err := cm.comparePartial(env, workspace, tree, touches, look)
		if err == nil || !errors.Is(err, hostfs.ErrMounted) || env.HasMountsBelow(workspace) {
			return parts, err
		}
	}
}

// appendPart appends p, the changes of a sandbox in one directory tree, to parts unless it has no changes.
func appendPart(parts []Part, p Part) []Part {
	if len(p.Changes) == 0 {
		return parts
	}
	return append(parts, p)
}

// comparePartial compares two states of a tree that contains mounts: it calls look for each directory without
// mounts that contains candidates (touches). It returns an error if a mount hides part of the workspace, and
// reports other paths that it left out as a notice.
func (cm *Comparer) comparePartial(env *hostfs.Environment, workspace, tree string, touches []snapshot.Candidate, look compareAtFunc) (parts []Part, err error) {
	defer func() {
		if err != nil {
			(&Changes{Parts: parts}).Close()
			parts = nil
		}
	}()
	inWorkspace := func(path string) bool { return hostfs.Within(path, workspace) }
	if list := env.MountsBelow(workspace); len(list) > 0 && slices.ContainsFunc(touches, func(t snapshot.Candidate) bool { return inWorkspace(filepath.Join(tree, t.Path)) }) {
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
		return parts, hostfs.MountedSince("comparing", tree, env.MountsBelow(tree))
	}
	cm.notice("not comparing the sandbox's changes at " + hostfs.Several(missed) + " because of mounts there: " + hostfs.Several(env.MountsBelow(tree)))
	return parts, nil
}

// A placeCandidates holds, for one comparison, a part of a tree (place) and its paths that may have changed,
// relative to that part.
type placeCandidates struct {
	place
	candidates []snapshot.Candidate
}

// divide groups the candidates, paths of a tree that may have changed, by the directory without mounts in
// which to compare them. Some can only be compared in the overlay layers: those directly in a directory that
// has mounts below it, and replaced or deleted directories. missed lists the candidates at or below a mount
// point, which cannot be compared.
func divide(e *hostfs.Environment, tree string, touches []snapshot.Candidate) (places []placeCandidates, missed []string) {
	direct := placeCandidates{place: place{tree: tree, dir: tree, layers: true}}
	at := map[string]int{}
	for _, t := range touches {
		abs := filepath.Join(tree, t.Path)
		dir := e.Clear(tree, abs)
		switch {
		case e.CrossesMount(tree, abs), dir == "" && t.Tree && e.HasMountsBelow(abs):
			missed = append(missed, abs)
		case dir == "" && e.HasMountsBelow(abs):
			// Only its attributes can differ, and the mount hides those.
		case dir == "" || dir == abs && t.Tree:
			direct.candidates = append(direct.candidates, t)
		default:
			i, known := at[dir]
			if !known {
				i = len(places)
				at[dir] = i
				places = append(places, placeCandidates{place: place{tree: tree, dir: dir}})
			}
			t.Path, _ = filepath.Rel(dir, abs) // lies in dir
			t.RenamedFrom = ""                 // may not lie in dir
			places[i].candidates = append(places[i].candidates, t)
		}
	}
	places = slices.DeleteFunc(places, func(p placeCandidates) bool { return direct.covers(p.dir) })
	if len(direct.candidates) > 0 {
		places = append(places, direct)
	}
	return places, missed
}

// covers reports whether one of the candidates, paths that may have changed, is dir or an ancestor of it and
// covers everything below.
func (p *placeCandidates) covers(dir string) bool {
	return slices.ContainsFunc(p.candidates, func(t snapshot.Candidate) bool { return t.Tree && hostfs.Within(dir, filepath.Join(p.tree, t.Path)) })
}
