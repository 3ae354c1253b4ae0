package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// A DriftReport says how far the real tree has moved since a sandbox's base was
// taken: in the workspace, and where the sandbox itself has changed or read something
// elsewhere.
type DriftReport struct {
	Sandbox string `json:"sandbox"`
	// Since is the instant of the base, by the clock of the workspace's
	// filesystem.
	Since time.Time `json:"since"`
	// Known: what was looked for was found in time. Otherwise the rest says
	// nothing.
	Known bool `json:"known"`
	// Exact: the base is frozen, and Paths is the difference. Otherwise Paths
	// are what has a later change time; see [DriftPath].
	Exact bool `json:"exact"`
	// Paths are what has moved, parents before what lies in them.
	Paths []DriftPath `json:"paths"`
	// Files is how many of them there are without the directories of which only
	// the entries have changed, where one of these is a path of its own.
	Files int `json:"files"`
	// Both is how many of Paths the sandbox has changed too.
	Both int `json:"both"`
	// More is how many paths were left out of a report that is told by a
	// keeper, or in the sandbox.
	More int `json:"more,omitempty"`

	promoted  map[string]promote.Stamp
	ReadSince int // how many files were read after they had moved
}

// A DriftPath is a place of the real tree that has moved.
type DriftPath struct {
	// Path is absolute.
	Path string `json:"path"`
	// Kind is, on a frozen base, "added", "modified" or "deleted". On a live
	// one it is "changed", or "entries changed" for a directory in which names
	// came or went: a change time cannot tell what was there before, nor what
	// was deleted.
	Kind string `json:"kind"`
	// Both: the sandbox has changed it too.
	Both bool `json:"both"`
	// Read: the sandbox, or who looked into it, has read it as it is now. Where that is told
	// (see [snapshot.ServerMonitor]) it is while the sandbox is in use.
	Read bool `json:"read"`
}

const entriesChanged = "entries changed"

// DriftOf says how far the real tree has moved since the base of a sandbox was
// taken, and what of that the sandbox has changed too. Cost: that of
// [snapshot.DriftDetector] where the backend is one, otherwise a walk of the
// workspace; and that of [Engine.Diff].
// Errors: errs.ErrNotFound, ErrInterrupted, and those of diff.At.
func (cm *Comparer) DriftOf(ctx context.Context, name string) (DriftReport, error) {
	rec, err := cm.cat.Get(name)
	if err != nil {
		return DriftReport{}, err
	}
	r, err := cm.DriftOfRecord(ctx, rec)
	if why := sandbox.WorkspaceMissing("looking for drift", rec); err != nil && why != nil {
		return r, why
	}
	return r, err
}

// heavy is how much may wait to be written to disks where a backend that has to
// wait for them is asked in passing. No process ends before such a wait does.
const maxUnwritten = 8 << 20

// DriftWithin is [Engine.DriftOf] for as long as it takes no longer than most:
// then, and where a wait for a disk may take longer, Known is false.
func (cm *Comparer) DriftWithin(ctx context.Context, name string, most time.Duration) (DriftReport, error) {
	rec, err := cm.cat.Get(name)
	if err != nil {
		return DriftReport{}, err
	}
	if t, ok := WorkspaceTree(rec); ok && t.Frozen && hostinfo.Unwritten() > maxUnwritten {
		return DriftReport{Sandbox: name, Since: t.Taken, Paths: []DriftPath{}}, nil
	}
	soon, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	r, err := cm.DriftOfRecord(soon, rec)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		return DriftReport{Sandbox: name, Paths: []DriftPath{}}, nil
	}
	return r, err
}

func (cm *Comparer) DriftOfRecord(ctx context.Context, rec *catalog.Record) (DriftReport, error) {
	r := DriftReport{Sandbox: rec.Name, Paths: []DriftPath{}}
	t, ok := WorkspaceTree(rec)
	if !ok {
		return r, nil
	}
	r.Since = t.Taken
	changes, exact, err := cm.RealChanges(ctx, rec, t)
	if err != nil {
		return r, err
	}
	r.Known, r.Exact = true, exact
	if r.promoted, err = cm.Promoted(rec.Name); err != nil {
		return r, err
	}
	r.Paths = DriftPaths(t, changes, r.promoted)
	mine, err := cm.Changes(ctx, rec)
	if err != nil {
		return r, err
	}
	defer mine.Close()
	r.MarkChanged(mine)
	r.addRead(cm.ReadSince(ctx, rec))
	return r, nil
}

// Noticed are the files of live trees that were read in a sandbox after they had moved, by absolute
// paths, each with its tree. Who cannot be asked has shown none: what is drift is found without him.
func (cm *Comparer) ReadSince(ctx context.Context, rec *catalog.Record) map[string]catalog.Tree {
	all := map[string]catalog.Tree{}
	for _, n := range cm.MonitorsOf(ctx, rec) {
		paths, err := n.Noticed(ctx, n.tree.Fork)
		if err != nil {
			continue
		}
		for _, p := range paths {
			all[filepath.Join(n.tree.Path, p)] = n.tree
		}
	}
	return all
}

type treeMonitor struct {
	snapshot.ServerMonitor
	tree catalog.Tree
}

func (cm *Comparer) MonitorsOf(ctx context.Context, rec *catalog.Record) (all []treeMonitor) {
	for _, t := range rec.Trees {
		if b, err := cm.host.BackendOf(ctx, t); err == nil {
			if n, ok := b.(snapshot.ServerMonitor); ok {
				all = append(all, treeMonitor{n, t})
			}
		}
	}
	return all
}

// notice adds what was read after it had moved, outside the workspace too.
func (r *DriftReport) addRead(all map[string]catalog.Tree) {
	r.ReadSince = len(all)
	for i := range r.Paths {
		p := &r.Paths[i]
		_, p.Read = all[p.Path]
		delete(all, p.Path)
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		st, err := vfs.Lstat(-1, path)
		if err != nil || st.CTime.Time().Before(all[path].Taken) {
			continue
		}
		if s, ours := r.promoted[path]; !ours || s.Ino != st.Ino || !s.CTime.Equal(st.CTime.Time()) {
			r.Paths = append(r.Paths, DriftPath{Path: path, Kind: "changed", Read: true})
		}
	}
	r.Files = CountFiles(r.Paths)
}

// HolderOf is the tree that the workspace is in: the one deepest down.
func WorkspaceTree(rec *catalog.Record) (t catalog.Tree, ok bool) {
	path := hostfs.Holder(rec)
	for _, t := range rec.Trees {
		if t.Path == path {
			return t, true
		}
	}
	return t, false
}

// DriftPaths leaves out directories whose time alone differs, because what that
// tells is told by what is in them, and what is still as a promotion of the
// sandbox left it.
func DriftPaths(t catalog.Tree, changes []diff.Change, promoted map[string]promote.Stamp) []DriftPath {
	paths := make([]DriftPath, 0, len(changes))
	for _, c := range changes {
		p := DriftPath{Path: filepath.Join(t.Path, c.Path), Kind: c.Kind.String()}
		switch {
		case t.Frozen && c.TimeOnly():
			continue
		case t.Frozen:
		case c.New.Mode.IsDir() && !c.New.MTime.Before(t.Taken):
			p.Kind = entriesChanged
		default:
			p.Kind = "changed"
		}
		if s, ok := promoted[p.Path]; !ok || c.New == nil || s.Ino != c.New.Ino || !s.CTime.Equal(c.New.CTime) {
			paths = append(paths, p)
		}
	}
	return paths
}

// Promoted are the stamps of what a sandbox's promotions left, by absolute path.
func (cm *Comparer) Promoted(name string) (map[string]promote.Stamp, error) {
	known, err := cm.baseline.Stamps(name)
	all := map[string]promote.Stamp{}
	for root, stamps := range known {
		for path, s := range stamps {
			all[filepath.Join(root, path)] = s
		}
	}
	return all, err
}

// Compare completes a report by what the sandbox has changed. What both have
// deleted has not moved away from either.
func (r *DriftReport) MarkChanged(mine *Changes) {
	type change struct {
		diff.Change
		part *Part
	}
	own := map[string]change{}
	for i := range mine.Parts {
		p := &mine.Parts[i]
		for _, c := range p.Changes {
			path := filepath.Join(p.Root, c.Path)
			if c.TimeOnly() {
				continue
			}
			own[path] = change{c, p}
			if !p.Workspace {
				r.addOutside(p, c, path)
			}
		}
	}
	r.Paths = slices.DeleteFunc(r.Paths, func(p DriftPath) bool {
		return p.Kind == diff.Deleted.String() && own[p.Path].Kind == diff.Deleted
	})
	for i := range r.Paths {
		p := &r.Paths[i]
		if c, ok := own[p.Path]; ok && !isRealFile(c.part, c.Change, p.Path) {
			p.Both = true
			r.Both++
		}
	}
	r.Files = CountFiles(r.Paths)
}

// elsewhere adds a path outside the workspace that the sandbox has changed, where
// the real one has moved.
func (r *DriftReport) addOutside(p *Part, c diff.Change, path string) {
	st, err := vfs.Lstat(-1, path)
	s, ours := r.promoted[path]
	kind := "changed"
	switch {
	case errors.Is(err, os.ErrNotExist) && p.Frozen && c.Old != nil:
		kind = diff.Deleted.String()
	case err != nil || st.IsDir() || st.CTime.Time().Before(p.Taken):
		return
	case ours && s.Ino == st.Ino && s.CTime.Equal(st.CTime.Time()), isRealFile(p, c, path):
		return
	case p.Frozen && c.Old == nil:
		kind = diff.Added.String()
	case p.Frozen:
		kind = diff.Modified.String()
	}
	r.Paths = append(r.Paths, DriftPath{Path: path, Kind: kind})
}

// showsThrough: what counts as added in a sandbox with a live base is the real
// file itself, which was made while the two were compared.
func isRealFile(p *Part, c diff.Change, path string) bool {
	if p.Frozen || c.Kind != diff.Added {
		return false
	}
	st, err := vfs.Lstat(-1, path)
	return err == nil && c.New.CTime.Equal(st.CTime.Time()) && c.New.MTime.Equal(st.MTime.Time())
}

// FilesIn counts paths, without directories that only repeat what another path
// says.
func CountFiles(paths []DriftPath) int {
	told := map[string]bool{} // directories of which a path is there
	for _, p := range paths {
		told[filepath.Dir(p.Path)] = true
	}
	n := 0
	for _, p := range paths {
		if p.Kind != entriesChanged || !told[p.Path] {
			n++
		}
	}
	return n
}

// RealChanges is what has happened to a real tree since the base of a sandbox
// was taken: in the workspace where the tree holds it, else in all of the tree.
// See [Engine.realChangesIn].
func (cm *Comparer) RealChanges(ctx context.Context, rec *catalog.Record, t catalog.Tree) (changes []diff.Change, exact bool, err error) {
	dir := t.Path
	if hostfs.Within(rec.Workspace, t.Path) {
		dir = rec.Workspace
	}
	return cm.RealChangesIn(ctx, t, dir)
}

// RealChangesIn is what has happened to the real tree at and beneath the absolute
// path dir, in the order of [diff.Less], by paths relative to the tree. What
// snapfs keeps in the tree, and what is mounted in it, is left out.
//
// On a frozen base it is exact: the difference of the base and the real tree. Its
// cost grows with what changed where the backend is a [snapshot.DriftDetector], and
// otherwise is that of [diff.Trees].
//
// On a live base it is not: the base is the real tree, and all there is to go by
// are change times. Each place whose change time is that of the base or later is
// a change of the kind Modified with New alone, without its attributes and its
// link's target. What is gone shows as a directory, where names came or went:
// its modification time is as late, which an added or a renamed name does too. A
// file that was moved here with a time of before is told as well, because a
// rename stamps it; what lies in a directory that was moved here is not.
// Cost: a walk, by four threads.
//
// Errors: those of the backend's Lookup and of [diff.At]; errs.ErrNotFound
// where the tree is gone.
func (cm *Comparer) RealChangesIn(ctx context.Context, t catalog.Tree, dir string) (changes []diff.Change, exact bool, err error) {
	b, err := cm.host.BackendOf(ctx, t)
	if err != nil {
		return nil, false, err
	}
	skip, err := cm.skipReal(b, t.Path)
	if err != nil {
		return nil, false, err
	}
	beneath, err := filepath.Rel(t.Path, dir)
	if err != nil || !filepath.IsLocal(beneath) {
		return nil, false, fmt.Errorf("comparing %s: it does not lie in the tree %s: %w", dir, t.Path, errs.ErrNotFound)
	}
	if !t.Frozen {
		changes, err = changesSince(ctx, t, beneath, skip)
		return changes, false, err
	}
	touches, err := driftCandidates(ctx, b, t.Base, beneath)
	if err != nil || len(touches) == 0 {
		return nil, err == nil, err
	}
	base, real, err := openReal(ctx, b, t)
	if err != nil {
		return nil, false, err
	}
	defer base.Close()
	defer real.Close()
	changes, err = diff.At(ctx, base, real, Sequence(touches), diff.Options{
		Skip: skip, SameInodes: b.Facts().RealInodes, Taken: t.Taken, OverlayViews: true,
	})
	return changes, err == nil, err
}

// driftTouches are the places at and beneath a path where a frozen base and the
// real tree may differ.
func driftCandidates(ctx context.Context, b snapshot.Backend, base snapshot.ID, beneath string) ([]snapshot.Candidate, error) {
	all := []snapshot.Candidate{{Path: beneath, Tree: true}}
	d, ok := b.(snapshot.DriftDetector)
	if !ok {
		return all, nil
	}
	var touches []snapshot.Candidate
	for t, err := range d.DetectDrift(ctx, base) {
		switch {
		case errors.Is(err, errs.ErrNotSupported):
			return all, nil
		case err != nil:
			return nil, err
		case t.Tree && LiesIn(beneath, t.Path):
			return all, nil
		case LiesIn(t.Path, beneath):
			touches = append(touches, t)
		}
	}
	return touches, nil
}

// LiesIn is within, for paths relative to a tree.
func LiesIn(path, dir string) bool { return dir == "." || hostfs.Within("/"+path, "/"+dir) }

// openReal opens a tree's base and the real tree for reading.
func openReal(ctx context.Context, b snapshot.Backend, t catalog.Tree) (base, real *os.File, err error) {
	s, err := b.Lookup(ctx, t.Base)
	if err != nil {
		return nil, nil, err
	}
	dirs, err := hostfs.OpenViews(ctx, isolate.OpenViews, t.Path, hostfs.MountOf("/", s.View), isolate.Mount{Target: "/", Source: t.Path})
	if err != nil {
		return nil, nil, err
	}
	return dirs[0], dirs[1], nil
}

// skipReal leaves out of a real tree what snapfs keeps in it, and what is mounted
// in it, which is a tree of its own or in no sandbox.
func (cm *Comparer) skipReal(b snapshot.Backend, tree string) (func(string) bool, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, fmt.Errorf("reading this machine's mounts: %w", err)
	}
	foreign := map[string]bool{}
	for _, m := range mounts {
		if m.Path != tree && hostfs.Within(m.Path, tree) {
			foreign[strings.TrimPrefix(m.Path[len(tree):], "/")] = true
		}
	}
	ours := cm.host.Skip(b, tree)
	return func(path string) bool { return foreign[path] || ours(path) }, nil
}

// Equal: two reports say the same.
func (r *DriftReport) Equal(o *DriftReport) bool {
	return r.Since.Equal(o.Since) && r.Known == o.Known && r.Exact == o.Exact && slices.Equal(r.Paths, o.Paths)
}
