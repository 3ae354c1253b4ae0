package reconcile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/merge/mergetool"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/isolate"
)

// RefreshOptions say how a refresh, a merge of real changes into a sandbox, resolves its conflicts.
type RefreshOptions struct {
	// Mine are the paths at which the sandbox's version is taken, and Theirs those at which the real one is: each a
	// file, a directory with everything below it, or "." for all.
	Mine, Theirs []string
	// Tool is the command of a merge tool for the others, and Terminal the one on which it runs; "" for none.
	Tool     string
	Terminal *mergetool.Terminal
}

// Refreshed is the result of [Reconciler.Refresh]: how much was merged, and the conflicts.
type Refreshed struct {
	Sandbox   string     `json:"sandbox"`
	Merged    int        `json:"brought"`            // the number of merged paths that both sides changed
	Resolved  int        `json:"resolved,omitempty"` // of answered conflicts of an earlier refresh
	Conflicts []Conflict `json:"conflicts"`          // the unresolved conflicts in the sandbox
}

// Refresh gives a sandbox a new base, the present real tree, and merges the sandbox's changes onto it. A conflict
// stays in the sandbox: a text file gets conflict markers, any other path keeps the sandbox's version. It blocks a
// promotion until an edit removes the markers or an answer resolves it.
//
// If an earlier refresh has left conflicts, Refresh only applies the answers to those and takes no new base; without
// answers it returns ErrConflict with the open conflicts. After an error the sandbox is unchanged. Named snapshots
// keep their old base. Errors: ErrBusy if a process runs in the sandbox; ErrNotFound if its workspace is gone. Cost:
// a snapshot and a fork of each tree; merging and writing all changes again.
func (rc *Reconciler) Refresh(ctx context.Context, name string, o RefreshOptions) (Refreshed, error) {
	return compare.Served(ctx, func(ctx context.Context) (Refreshed, error) { return rc.refresh(ctx, name, o) })
}

func (rc *Reconciler) refresh(ctx context.Context, name string, o RefreshOptions) (Refreshed, error) {
	if err := rc.RefuseUnfinished("refreshing", name, ""); err != nil {
		return Refreshed{}, err
	}
	h, err := rc.supervise.Hold(ctx, name, "refreshing")
	if err != nil {
		return Refreshed{}, err
	}
	defer h.Release()
	if err := rc.supervise.MustBeIdle(ctx, h, "refreshing"); err != nil {
		return Refreshed{}, err
	}
	rc.keyPoints.Take(ctx, h, rc.supervise.SealAll, catalog.Why{Point: catalog.AtRefresh, When: keypoint.Before})
	rc.baseline.Record(ctx, h.Record)
	changes, err := rc.compare.Changes(ctx, h.Record)
	if err != nil {
		return Refreshed{}, err
	}
	defer changes.Close()
	open, err := rc.unresolved(ctx, h.Record, changes)
	if err != nil {
		return Refreshed{}, err
	}
	a := Answers{mine: o.Mine, theirs: o.Theirs, tool: o.Tool, terminal: o.Terminal, failed: new(error)}
	r := Refreshed{Sandbox: name, Conflicts: []Conflict{}}
	switch {
	case len(open) == 0:
		if err = sandbox.WorkspaceMissing("refreshing", h.Record); err == nil {
			err = rc.rebase(ctx, h, changes, a, &r)
		}
	case a.none():
		return r, conflictsError("refreshing", name, open)
	default:
		err = rc.resolve(ctx, h, changes, a, &r)
		rc.baseline.Record(ctx, h.Record)
	}
	if err != nil {
		return r, err
	}
	rc.announce(events.SandboxRefreshed, h.Record, events.Data{Changes: r.Merged})
	rc.keyPoints.Take(ctx, h, rc.supervise.SealAll, catalog.Why{Point: catalog.AtRefresh, When: keypoint.After})
	left, err := rc.conflictsOf(ctx, h.Record)
	if err != nil { // not an error of the refresh, which is saved: nobody must repeat it
		rc.notice("refreshed, but the conflicts were not listed (snapfs plan " + name + "): " + err.Error())
	}
	if len(left) > 0 {
		r.Conflicts = left
	}
	h.Release()
	return r, rc.sandboxes.SweepLater(ctx)
}

// A refreshing is the state of one refresh: the sandbox, and the new base and stored originals it makes.
type refreshing struct {
	rc       *Reconciler
	h        *catalog.Locked
	next     *catalog.Record // with the new base and forks
	list     conflictList
	baseline *baseline.Baseline
	r        *Refreshed
}

// rebase gives a sandbox a new base with forks of it, and writes the merged changes there. The catalogue refers to
// the new forks only when all is complete.
func (rc *Reconciler) rebase(ctx context.Context, h *catalog.Locked, changes *compare.Changes, a Answers, r *Refreshed) error {
	ids, forks := sandbox.NewSnapshotIDs(h.Record), make([]snapshot.ForkID, len(h.Trees))
	for i := range forks {
		forks[i] = h.NewFork()
	}
	return rc.sandboxes.Changing(ctx, h, func() error {
		release, err := rc.cat.Share() // keeps the garbage collector from removing a shared base meanwhile
		if err != nil {
			return err
		}
		defer release()
		x := &refreshing{rc: rc, h: h, r: r, next: cloneRecord(h.Record), list: conflictList{Format: 1}}
		if err := x.forkTrees(ctx, ids, forks); err != nil {
			return err
		}
		x.baseline = &baseline.Baseline{Dir: rc.baseline.BaseDir(h.Name, x.next.Refreshed), Nodes: map[string]baseline.Entry{}}
		if err := x.makeBaselineDir(ctx); err != nil {
			return err
		}
		for _, p := range changes.Parts {
			if err := x.mergePart(ctx, p, a); err != nil {
				return err
			}
		}
		// Record the originals before the commit: if this process ends after it,
		// the real tree may change before another command records them.
		if _, err := rc.baseline.TryRecord(ctx, x.next); err != nil {
			return err
		}
		return x.commit(ctx)
	})
}

// cloneRecord returns a copy of a sandbox's catalogue entry with slices of its own.
func cloneRecord(r *catalog.Record) *catalog.Record {
	c := *r
	c.Trees, c.Snapshots, c.Past = slices.Clone(r.Trees), slices.Clone(r.Snapshots), slices.Clone(r.Past)
	return &c
}

// forkTrees takes snapshots, ids, of the real trees and forks them. A vanished tree keeps its base and fork.
func (x *refreshing) forkTrees(ctx context.Context, ids []snapshot.ID, forks []snapshot.ForkID) error {
	base := &catalog.Base{Refreshed: 1 + slices.Max(x.next.Generations())}
	free := *x.next // limits apply again when the old forks are removed
	free.Policy.Limits.Disk, free.Policy.Limits.Inodes = 0, 0
	for i, t := range x.next.Trees {
		if err := fault.Point(ctx, "capture a new base"); err != nil {
			return errs.Wrap("refreshing", t.Path, err)
		}
		if !hostfs.Vanished(t, x.next.Workspace) {
			b, err := x.rc.host.BackendOf(ctx, t)
			if err != nil {
				return err
			}
			t.Base, t.Fork = ids[i], forks[i]
			if err := sandbox.CaptureAndFork(ctx, b, &free, &t); err != nil {
				return err
			}
		}
		base.Trees = append(base.Trees, catalog.TreeBase{Base: t.Base, Taken: t.Taken, Frozen: t.Frozen})
		x.next.Trees[i].Fork = t.Fork
	}
	x.next.SetBase(base)
	return nil
}

// makeBaselineDir makes the directory for originals of the new base, after removing one of a killed refresh.
func (x *refreshing) makeBaselineDir(ctx context.Context) error {
	if err := fault.Point(ctx, "create the new baseline"); err != nil {
		return errs.Wrap("refreshing", x.baseline.Dir, err)
	}
	err := os.RemoveAll(x.baseline.Dir)
	if err == nil {
		err = os.MkdirAll(x.baseline.Dir, 0o700)
	}
	if err != nil {
		return errs.Wrap("refreshing", x.baseline.Dir, err)
	}
	return nil
}

// mergePart merges the changes in one directory, p, onto the new base and writes the result to the new fork.
func (x *refreshing) mergePart(ctx context.Context, p compare.Part, a Answers) error {
	request := mergeRequest{rec: x.h.Record, choose: a.choose(ctx, x.h.Record), failed: a.failed}
	i := slices.IndexFunc(x.h.Trees, func(t catalog.Tree) bool { return t.Path == p.Tree })
	if p.Frozen {
		request.real = func(p compare.Part) (*os.File, []diff.Change, error) {
			return x.rc.sinceBase(ctx, x.h.Trees[i], x.next.Trees[i].Base, p)
		}
	}
	m, err := x.rc.mergePart(ctx, request, p)
	if err != nil && !p.Workspace && hostfs.Vanished(x.h.Trees[i], x.h.Workspace) {
		x.next.Trees[i] = x.h.Trees[i] // the disk has just vanished: keep its old state
		return nil
	}
	if err != nil {
		return err
	}
	defer m.close()
	fork, err := x.rc.OpenFork(ctx, x.next.Trees[i], p.Root)
	if err != nil {
		return err
	}
	defer fork.Close()
	source := promote.Source{Tree: p.New, Built: m.built, In: m.res.Built, From: m.res.From}
	if err := promote.Replay(ctx, fork.Dir, source, m.res.Changes); err != nil {
		return err
	}
	for _, c := range m.in.Real {
		if n, seen := m.seen[c.Path]; seen && n != nil && !n.Mode.IsDir() {
			x.r.Merged++
		}
	}
	for _, c := range m.res.Conflicts {
		if err := x.addConflict(ctx, m, c, fork.Dir); err != nil {
			return err
		}
	}
	return fork.Sync(ctx)
}

// addConflict writes a conflict to fork, the new clone, as text with markers or the sandbox's version, and lists it.
func (x *refreshing) addConflict(ctx context.Context, m *partMerge, c merge.Conflict, fork *os.File) error {
	conflict := m.conflict(c)
	hidden, err := x.rc.host.Masks(ctx, x.h.Record, conflict.Path)
	if err != nil {
		return err
	}
	c.Marked = c.Marked && !hidden // the markers would show the real version
	entry := refreshConflict{
		Path: conflict.Path, Kind: c.Kind, Why: c.Why, Marked: c.Marked, Alone: c.Alone, MineName: m.in.MineName, RealName: m.in.RealName,
		MinePath: conflict.MinePath, RealPath: conflict.RealPath, Also: conflict.Also,
	}
	if c.Marked {
		err = x.writeMarked(ctx, m, c, &entry, fork)
	} else {
		err = restoreMine(ctx, m, c, fork)
	}
	x.list.Conflicts = append(x.list.Conflicts, entry)
	return err
}

// restoreMine writes the sandbox's version of a conflict's paths to the new fork of a refresh. If the conflict is
// about a directory itself (Alone), it writes only the directory's mode, owner and xattrs.
func restoreMine(ctx context.Context, m *partMerge, c merge.Conflict, fork *os.File) error {
	if c.Alone { // the sandbox may have moved the directory
		change := diff.Change{Path: c.Path, Kind: diff.Modified, What: diff.Mode | diff.Owner | diff.Xattrs, Old: c.Real, New: c.Mine}
		return promote.Replay(ctx, fork, promote.Source{Tree: m.Part.New}, []diff.Change{change})
	}
	touch := func(path string) snapshot.Candidate { return snapshot.Candidate{Path: path, Tree: true} }
	return copyFrom(ctx, fork, m.Part.New, m.Part.Opt.Skip, each(c.Paths(), touch))
}

// copyFrom makes the paths touches of tree, a fork, equal to those of source. Other entries of their directories
// stay, even if source has no such directory. skip reports paths of snapfs itself, to leave out.
func copyFrom(ctx context.Context, tree, source *os.File, skip func(string) bool, touches []snapshot.Candidate) error {
	changes, err := diff.At(ctx, tree, source, touches, diff.Options{Skip: skip, OverlayViews: true})
	if err != nil {
		return err
	}
	whole := map[string]bool{}
	for _, t := range touches {
		whole[t.Path] = t.Tree
	}
	changes = slices.DeleteFunc(changes, func(c diff.Change) bool {
		_, touched := whole[c.Path]
		for at := c.Path; !touched && at != "."; {
			at = filepath.Dir(at)
			touched = whole[at]
		}
		return !touched
	})
	return promote.Replay(ctx, tree, promote.Source{Tree: source}, changes)
}

// writeMarked writes text with conflict markers to the new fork, and stores its three versions for an answer.
func (x *refreshing) writeMarked(ctx context.Context, m *partMerge, c merge.Conflict, entry *refreshConflict, fork *os.File) error {
	dir := m.scratch + ".marked"
	defer os.RemoveAll(dir) //nolint:errcheck // or the next use does
	path := filepath.Join(dir, c.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return scratchError(path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return scratchError(path, err)
	}
	defer f.Close()
	if err := merge.WriteMarkers(ctx, m.in, c, f); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return scratchError(path, err)
	}
	built, err := baseline.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer built.Close()
	n := *c.Mine
	n.Size, n.MTime, n.CTime, n.LinkOf, n.NLink = info.Size(), info.ModTime(), info.ModTime(), "", 1
	source := promote.Source{Tree: m.Part.New, Built: built, In: map[string]bool{c.Path: true}}
	changes := []diff.Change{{Path: c.Path, Kind: diff.Added, New: &n}}
	if c.RealPath != "" { // the sandbox's version has another path
		changes = slices.Insert(changes, 0, diff.Change{Path: c.RealPath, Kind: diff.Deleted, Old: c.Real})
	}
	if err := promote.Replay(ctx, fork, source, changes); err != nil {
		return err
	}
	entry.Mode = c.Mine.Mode
	for _, v := range []struct {
		into *string
		open func() (*os.File, error)
		n    *diff.Node
	}{
		{&entry.Mine, func() (*os.File, error) { return openAt(m.Part.New, other(c.MinePath, c.Path)) }, c.Mine},
		{&entry.Real, func() (*os.File, error) { return openAt(m.real, other(c.RealPath, c.Path)) }, c.Real},
		{&entry.Base, func() (*os.File, error) { return m.in.OpenBase(other(c.BasePath, c.Path)) }, c.Base},
	} {
		if v.n == nil {
			continue
		}
		if *v.into, err = x.storeVersion(v.open); err != nil {
			return err
		}
	}
	return nil
}

// openAt opens a regular file of a tree; the caller closes it.
func openAt(tree *os.File, path string) (*os.File, error) {
	l := baseline.RootedReader{Root: tree}
	return l.Open(path)
}

// storeVersion stores one version of a conflicting text beside the new baseline. It returns its name; "" if none.
func (x *refreshing) storeVersion(open func() (*os.File, error)) (string, error) {
	f, err := open()
	if errors.Is(err, errs.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := readText(f)
	if err != nil {
		return "", err
	}
	return x.baseline.Store(data, nil)
}

// commit ends a refresh: it saves conflicts, then the catalogue entry with new forks, and removes the old.
func (x *refreshing) commit(ctx context.Context) error {
	if len(x.list.Conflicts) > 0 {
		if err := fault.Point(ctx, "note the conflicts"); err != nil {
			return errs.Wrap("refreshing", x.h.Name, err)
		}
		if err := x.rc.saveConflicts(x.next, x.list); err != nil {
			return err
		}
	}
	if hostfs.LimitsDisk(x.next.Policy.Limits) {
		if err := x.rc.sandboxes.LimitForks(ctx, x.next, x.next.Policy.Limits); err != nil {
			return err
		}
	}
	*x.h.Record = *x.next
	if err := x.h.Save(); err != nil {
		return err
	}
	return x.rc.sandboxes.Tidy(ctx, x.h.Record) // removes the old forks
}

// sinceBase opens the new base of a tree, the snapshot next, at a part's directory, and returns it with its changes
// since the old base. The caller closes the file.
func (rc *Reconciler) sinceBase(ctx context.Context, t catalog.Tree, next snapshot.ID, part compare.Part) (*os.File, []diff.Change, error) {
	b, err := rc.host.BackendOf(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	p := compare.Pair{Tree: t, Left: t.Base, Right: next}
	touches, walk, err := compare.ListChanges(ctx, b, p)
	if err != nil {
		return nil, nil, err
	}
	old, now, err := compare.OpenPair(ctx, b, p)
	if err != nil {
		return nil, nil, err
	}
	defer old.Close()
	var changes []diff.Change
	switch {
	case t.Base == next:
	case walk:
		changes, err = diff.Trees(ctx, old, now, part.TreeOptions(rc.compare, b))
	default:
		changes, err = diff.At(ctx, old, now, touches, part.TreeOptions(rc.compare, b))
	}
	prefix, rerr := filepath.Rel(part.Tree, part.Root)
	if err = errors.Join(err, rerr); err != nil || prefix == "." {
		if err != nil {
			now.Close()
		}
		return now, changes, err
	}
	defer now.Close()
	var inside []diff.Change
	for _, c := range changes {
		if hostfs.Within("/"+c.Path, "/"+prefix) {
			inside = append(inside, compare.Rebase(c, prefix))
		}
	}
	dir, err := hostfs.OpenBeneath(now, prefix)
	if err != nil {
		return nil, nil, errs.Wrap("reading", part.Root, err)
	}
	return dir, inside, nil
}

// A ForkTree is a directory of a sandbox's fork, mounted so that a refresh can write merged files to it.
type ForkTree struct {
	rc   *Reconciler
	tree catalog.Tree
	Dir  *os.File // the root of a part
}

// OpenFork opens the directory dir of t.Fork, which no process uses, for writing. The caller closes it.
func (rc *Reconciler) OpenFork(ctx context.Context, t catalog.Tree, dir string) (*ForkTree, error) {
	if err := fault.Point(ctx, "open the new fork"); err != nil {
		return nil, errs.Wrap("refreshing", dir, err)
	}
	b, err := rc.host.BackendOf(ctx, t)
	if err != nil {
		return nil, err
	}
	f, err := b.LookupFork(ctx, t.Fork)
	if err != nil {
		return nil, err
	}
	dirs, err := hostfs.OpenDir(ctx, isolate.OpenForks, b, t.Path, dir, true, f.View)
	if err != nil {
		return nil, err
	}
	return &ForkTree{rc: rc, tree: t, Dir: dirs[0]}, nil
}

// Close closes the directory, which unmounts the fork. Repeating it is safe.
func (f *ForkTree) Close() { f.Dir.Close() }

// Sync closes the open directory of the fork and syncs the fork, so that other processes see the writes.
func (f *ForkTree) Sync(ctx context.Context) error {
	f.Close()
	b, err := f.rc.host.BackendOf(ctx, f.tree)
	if err != nil {
		return err
	}
	if s, ok := b.(snapshot.Syncer); ok {
		return s.Sync(ctx, f.tree.Fork)
	}
	return nil
}
