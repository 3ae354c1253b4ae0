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
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// A DriftReport lists how the real tree has changed since a sandbox's base was taken. It covers the whole
// workspace, and outside of it the paths that the sandbox has changed or read.
type DriftReport struct {
	Sandbox string `json:"sandbox"`
	// Since is the time of the base, by the clock of the workspace's filesystem.
	Since time.Time `json:"since"`
	// Known is false if the search was abandoned for time. The other fields then
	// mean nothing.
	Known bool `json:"known"`
	// Exact is set if the base is frozen and Paths are the exact difference. Otherwise Paths
	// are found by change time; see [DriftPath].
	Exact bool `json:"exact"`
	// Paths lists the real files and directories changed since the base was taken, sorted, a
	// directory before its entries.
	Paths []DriftPath `json:"paths"`
	// Files is the number of Paths, not counting a directory of which only the entries changed
	// if Paths has one of these entries.
	Files int `json:"files"`
	// Both is the number of Paths that the sandbox has changed, too.
	Both int `json:"both"`
	// More is the number of paths left out of a report from a supervisor or
	// inside the sandbox.
	More int `json:"more,omitempty"`

	promoted map[string]promote.Stamp
	// ReadSince is the number of files that the sandbox read after they changed.
	ReadSince int `json:"read_since"`
}

// A DriftPath is one path of the real tree that has changed since the sandbox's base was taken.
type DriftPath struct {
	// Path is absolute.
	Path string `json:"path"`
	// Kind is "added", "modified" or "deleted" on a frozen base. On a live base
	// it is "changed", or "entries changed" for a directory in which names were
	// added, removed or renamed: a change time does not show what was there
	// before, nor what was deleted.
	Kind string `json:"kind"`
	// Both is set if the sandbox has changed the path, too.
	Both bool `json:"both"`
	// Read is set if a process has read the path through the sandbox since the real file
	// changed. Only a backend that is a [snapshot.ServerMonitor] reports that, while the
	// sandbox is in use.
	Read bool `json:"read"`
}

const entriesChanged = "entries changed"

// DriftOf reports how the real tree has changed since the base of the sandbox called name was taken, and
// which of these paths the sandbox has changed, too. If the workspace does not exist any more, it returns the
// report and an error.
//
// Cost: that of [snapshot.DriftDetector] if the backend is one, otherwise a walk of the workspace; and that
// of [Comparer.Diff].
//
// Errors: errs.ErrNotFound, ErrInterrupted, and those of diff.At.
func (cm *Comparer) DriftOf(ctx context.Context, name string) (DriftReport, error) {
	rec, err := cm.cat.Get(name)
	if err != nil {
		return DriftReport{}, err
	}
	r, err := cm.DriftOfRecord(ctx, rec)
	if why := sandbox.WorkspaceMissing("checking drift", rec); err != nil && why != nil {
		return r, why
	}
	if err == nil && len(r.Paths) > 0 {
		cm.events.Append(events.Event{Type: events.DriftFound, Subject: name, SandboxID: rec.ID, Data: events.Data{Changes: len(r.Paths)}})
	}
	return r, err
}

// DriftOfRecord reports the drift of a sandbox as [Comparer.DriftOf] does, given its record. It does not
// check whether the workspace still exists, and announces no event.
func (cm *Comparer) DriftOfRecord(ctx context.Context, rec *catalog.Record) (DriftReport, error) {
	return Served(ctx, func(ctx context.Context) (DriftReport, error) { return cm.driftOf(ctx, ctx, rec) })
}

// driftOf implements [Comparer.DriftOfRecord], with a second context: the search of the real tree, whose
// duration is unknown, ends with search, and all other work with ctx.
func (cm *Comparer) driftOf(ctx, search context.Context, rec *catalog.Record) (DriftReport, error) {
	r := DriftReport{Sandbox: rec.Name, Paths: []DriftPath{}}
	if err := cm.CompleteBases(ctx, rec); err != nil {
		return r, err
	}
	t, ok := WorkspaceTree(rec)
	if !ok || t.Taken.IsZero() {
		return r, nil
	}
	r.Since = t.Taken
	changes, exact, err := cm.RealChanges(search, rec, t)
	if err != nil {
		return r, err
	}
	r.Known, r.Exact = true, exact
	if r.promoted, err = cm.Promoted(rec.Name); err != nil {
		return r, err
	}
	r.Paths = DriftPaths(t, changes, r.promoted)
	listed, err := cm.candidatesNear(ctx, rec, r.Paths)
	if err != nil {
		return r, err
	}
	mine, err := cm.ChangesAt(ctx, rec, "", "", listed)
	if err != nil {
		return r, err
	}
	defer mine.Close()
	r.MarkChanged(mine)
	r.addRead(cm.ReadSince(ctx, rec))
	return r, nil
}

// ReadSince returns the files of the host that processes in the sandbox read after they had changed, by
// absolute path, each with its tree. A process may have used content that the sandbox's base did not have. It
// leaves out trees with a frozen base or a backend that cannot report that.
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

// A TreeMonitor asks the FUSE server process of one tree of a sandbox about the tree, such as which files the
// sandbox read after they had changed on the host.
type TreeMonitor struct {
	snapshot.ServerMonitor
	tree catalog.Tree
}

// MonitorsOf returns a monitor for each tree of a sandbox that a FUSE server process serves. Through it the
// caller learns which files of the tree change on the host. Trees of other backends have none.
func (cm *Comparer) MonitorsOf(ctx context.Context, rec *catalog.Record) (all []TreeMonitor) {
	for _, t := range rec.Trees {
		if b, err := cm.host.BackendOf(ctx, t); err == nil {
			if n, ok := b.(snapshot.ServerMonitor); ok {
				all = append(all, TreeMonitor{n, t})
			}
		}
	}
	return all
}

// addRead sets Read for each path of the report that is in all, the files that the sandbox read after they
// changed. It adds those that the report does not list, which are outside the workspace.
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

// WorkspaceTree returns the sandbox's tree that contains its workspace, the innermost one if several do. ok
// is false if none does.
func WorkspaceTree(rec *catalog.Record) (t catalog.Tree, ok bool) {
	path := hostfs.Holder(rec)
	for _, t := range rec.Trees {
		if t.Path == path {
			return t, true
		}
	}
	return t, false
}

// CompleteBases fills in the time and kind of each base that is missing in the record of a sandbox that is
// being created: `snapfs run` writes the record before it captures the bases. A base that does not exist yet
// stays without.
func (cm *Comparer) CompleteBases(ctx context.Context, rec *catalog.Record) error {
	if rec.State != catalog.Creating {
		return nil
	}
	for i := range rec.Trees {
		t := &rec.Trees[i]
		if !t.Taken.IsZero() {
			continue
		}
		b, err := cm.host.BackendOf(ctx, *t)
		if err != nil {
			return err
		}
		s, err := b.Lookup(ctx, t.Base)
		if errors.Is(err, errs.ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		t.Taken, t.Frozen = s.Taken, s.Frozen
	}
	return nil
}

// DriftPaths converts changes of the real tree t to drift. It leaves out two kinds: directories of which only
// the time differs, because their entries show the reason, and paths that are still as a promotion of this
// sandbox left them, by their stamps in promoted.
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

// Promoted returns the stamps of all files that promotions of the sandbox called name wrote, by absolute
// path. A stamp, inode number and change time, shows whether the file has changed since.
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

// MarkChanged sets Both for each path of the report that the sandbox has changed too, by its changes mine. It
// adds such paths outside the workspace, and drops paths that both the sandbox and the real tree have
// deleted.
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

// addOutside adds a path outside the workspace to the report if the real path has changed since the base,
// too. The sandbox changed it as c of part p says.
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

// isRealFile reports whether a file that seems added in the sandbox is in truth the host's own. If the base
// is the real tree itself, a file that the host creates during the comparison shows up so.
func isRealFile(p *Part, c diff.Change, path string) bool {
	if p.Frozen || c.Kind != diff.Added {
		return false
	}
	st, err := vfs.Lstat(-1, path)
	return err == nil && c.New.CTime.Equal(st.CTime.Time()) && c.New.MTime.Equal(st.MTime.Time())
}

// CountFiles returns the number of drifted paths. It leaves out a directory whose entries changed if paths
// also lists one of these entries.
func CountFiles(paths []DriftPath) int {
	parents := map[string]bool{}
	for _, p := range paths {
		parents[filepath.Dir(p.Path)] = true
	}
	n := 0
	for _, p := range paths {
		if p.Kind != entriesChanged || !parents[p.Path] {
			n++
		}
	}
	return n
}

// RealChanges returns the changes of the real tree t since the sandbox's base was taken: in the workspace if
// the tree contains it, otherwise in the whole tree. exact is false if only change times are known; see
// [Comparer.RealChangesIn].
func (cm *Comparer) RealChanges(ctx context.Context, rec *catalog.Record, t catalog.Tree) (changes []diff.Change, exact bool, err error) {
	dir := t.Path
	if hostfs.Within(rec.Workspace, t.Path) {
		dir = rec.Workspace
	}
	return cm.RealChangesIn(ctx, t, dir)
}

// RealChangesIn returns the changes that the host made to the real tree t since the base was taken, at and
// below the absolute path dir. They are in the order of [diff.Less], with paths relative to the tree. It
// skips snapfs's own directories and mount points in the tree.
//
// On a frozen base the result is exact: the difference between the base and the real tree. The cost grows
// with the number of changes if the backend is a [snapshot.DriftDetector], and is otherwise that of
// [diff.Trees].
//
// On a live base the result is not exact, because only change times are known. Each path with a change time
// of the base or later is a change of kind Modified with New alone, without extended attributes and link
// target:
//
//   - A deletion shows only as its directory, with a later modification time, as does an added or a renamed name.
//   - A file that was renamed into the tree is found, because a rename sets the change time.
//   - The entries of a directory that was renamed into the tree are not found.
//
// The cost on a live base is a walk in four threads.
//
// Errors: those of the backend's Lookup and of [diff.At]; errs.ErrNotFound if the tree does not exist any
// more.
func (cm *Comparer) RealChangesIn(ctx context.Context, t catalog.Tree, dir string) (changes []diff.Change, exact bool, err error) {
	b, err := cm.host.BackendOf(ctx, t)
	if err != nil {
		return nil, false, err
	}
	skip, err := cm.skipReal(b, t.Path)
	if err != nil {
		return nil, false, err
	}
	below, err := filepath.Rel(t.Path, dir)
	if err != nil || !filepath.IsLocal(below) {
		return nil, false, fmt.Errorf("comparing %s: the path is outside the tree %s: %w", dir, t.Path, errs.ErrNotFound)
	}
	if !t.Frozen {
		changes, err = changesSince(ctx, t, below, skip)
		return changes, false, err
	}
	touches, err := driftCandidates(ctx, b, t.Base, below)
	if err != nil || len(touches) == 0 {
		return nil, err == nil, err
	}
	base, real, err := openReal(ctx, b, t)
	if err != nil {
		return nil, false, err
	}
	defer base.Close()
	defer real.Close()
	changes, err = diff.At(ctx, base, real, touches, diff.Options{
		Skip: skip, SameInodes: b.Facts().RealInodes, Taken: t.Taken, OverlayViews: true,
	})
	return changes, err == nil, err
}

// driftCandidates returns the paths, at and below the relative path below, at which the frozen base and the
// real tree may differ. This is below itself, as a whole, if the backend cannot list them.
func driftCandidates(ctx context.Context, b snapshot.Backend, base snapshot.ID, below string) ([]snapshot.Candidate, error) {
	all := []snapshot.Candidate{{Path: below, Tree: true}}
	d, ok := b.(snapshot.DriftDetector)
	if !ok {
		return all, nil
	}
	var touches []snapshot.Candidate
	for t, err := range d.DetectDrift(ctx, base) {
		if err := interrupted(ctx, "comparing", below); err != nil {
			return nil, err
		}
		switch {
		case errors.Is(err, errs.ErrNotSupported):
			return all, nil
		case err != nil:
			return nil, err
		case t.Tree && liesIn(below, t.Path):
			return all, nil
		case liesIn(t.Path, below):
			touches = append(touches, t)
		}
	}
	return touches, nil
}

// liesIn reports whether path is dir or lies below it. Both are relative to the same tree, whose root is ".".
func liesIn(path, dir string) bool { return dir == "." || hostfs.Within("/"+path, "/"+dir) }

// openReal opens the root of the base and the root of the real tree of t, to detect drift; the caller closes
// both.
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

// skipReal returns a function that reports whether a comparison with the real tree leaves out a path:
// snapfs's own directories, and mount points, because a mounted filesystem is a tree of its own or in no
// sandbox. Paths are relative to tree.
func (cm *Comparer) skipReal(b snapshot.Backend, tree string) (func(string) bool, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, fmt.Errorf("reading the host's mounts: %w", err)
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

// Equal reports whether two reports list the same drift, that is, the same changed paths of the real tree,
// whatever the counts and the sandbox's name.
func (r *DriftReport) Equal(o *DriftReport) bool {
	return r.Since.Equal(o.Since) && r.Known == o.Known && r.Exact == o.Exact && slices.Equal(r.Paths, o.Paths)
}
