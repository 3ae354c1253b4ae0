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
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/isolate"
)

// RefreshOptions say how conflicts are answered, as in [PromoteOptions].
type RefreshOptions struct {
	Mine, Theirs []string
	Tool         string
	Terminal     *Terminal
}

// Refreshed is what a refresh did.
type Refreshed struct {
	Sandbox string `json:"sandbox"`
	// Brought is how many paths of the real tree that the sandbox had changed too
	// were merged, and Resolved how many conflicts were answered that an earlier
	// refresh had left.
	Merged   int `json:"brought"`
	Resolved int `json:"resolved,omitempty"`
	// Conflicts are now in the sandbox, to be resolved there.
	Conflicts []Conflict `json:"conflicts"`
}

// Refresh makes the real tree as it is now the base of a sandbox, and lays what
// the sandbox has changed over it. What has no single answer stays in the sandbox:
// a text with both sides between marks, anything else as the sandbox has it; and
// nothing of it is promoted until it is resolved, by an edit that removes the marks
// or by an answer.
//
// Where an earlier refresh has left conflicts, the answers are for them, and there
// is no new base: ErrConflict names those that are open where nothing is answered.
// Atomic: after an error the sandbox is as it was. Its named states keep the base
// that they have. Nothing may run in it (ErrBusy), and its workspace must be there (ErrNotFound).
// Cost: a capture and a fork of each tree; the changes are merged, and written
// again.
func (rc *Reconciler) Refresh(ctx context.Context, name string, o RefreshOptions) (Refreshed, error) {
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
	a := answers{mine: o.Mine, theirs: o.Theirs, tool: o.Tool, terminal: o.Terminal, failed: new(error)}
	r := Refreshed{Sandbox: name, Conflicts: []Conflict{}}
	switch {
	case len(open) == 0:
		if err = sandbox.WorkspaceMissing("refreshing", h.Record); err == nil {
			err = rc.rebase(ctx, h, changes, a, &r)
		}
	case a.none():
		return r, ConflictsError("refreshing", name, open)
	default:
		err = rc.resolve(ctx, h, changes, a, &r)
		rc.baseline.Record(ctx, h.Record)
	}
	if err != nil {
		return r, err
	}
	left, err := rc.conflictsOf(ctx, h.Record)
	if len(left) > 0 {
		r.Conflicts = left
	}
	h.Release()
	return r, errors.Join(err, rc.sandboxes.SweepLater(ctx))
}

func (rc *Reconciler) conflictsOf(ctx context.Context, rec *catalog.Record) ([]Conflict, error) {
	changes, err := rc.compare.Changes(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer changes.Close()
	return rc.unresolved(ctx, rec, changes)
}

// A refreshing is a refresh being made.
type refreshing struct {
	rc       *Reconciler
	h        *catalog.Locked
	next     *catalog.Record // with the new base and forks
	list     conflictList
	baseline *baseline.Baseline
	r        *Refreshed
}

// rebase gives a sandbox a new base and forks of it, and writes what is merged
// there. Only when all of it is complete the record says so.
func (rc *Reconciler) rebase(ctx context.Context, h *catalog.Locked, changes *compare.Changes, a answers, r *Refreshed) error {
	ids, forks := sandbox.NewSnapshotIDs(h.Record), make([]snapshot.ForkID, len(h.Trees))
	for i := range forks {
		forks[i] = h.NewFork()
	}
	return rc.sandboxes.Changing(ctx, h, func() error {
		release, err := rc.cat.Share() // a base that was found to serve is not collected meanwhile
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
		// Once the record says so, nothing could tell any more what a live base held
		// at the places that are changed already, should this process end here.
		if _, err := rc.baseline.TryRecord(ctx, x.next); err != nil {
			return err
		}
		return x.commit(ctx)
	})
}

func cloneRecord(r *catalog.Record) *catalog.Record {
	c := *r
	c.Trees, c.Snapshots, c.Past = slices.Clone(r.Trees), slices.Clone(r.Snapshots), slices.Clone(r.Past)
	return &c
}

// grow captures and forks each tree. What is not there any more stays as it is.
func (x *refreshing) forkTrees(ctx context.Context, ids []snapshot.ID, forks []snapshot.ForkID) error {
	base := &catalog.Base{Refreshed: 1 + slices.Max(x.next.Generations())}
	free := *x.next // what is merged counts when the old forks go
	free.Policy.Limits.Disk, free.Policy.Limits.Inodes = 0, 0
	for i, t := range x.next.Trees {
		if err := fault.Point(ctx, "capture a new base"); err != nil {
			return rebaseError(t.Path, err)
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

func rebaseError(path string, err error) error {
	var done *errs.Error
	if errors.As(err, &done) {
		return err
	}
	return &errs.Error{Op: "refreshing", Path: path, Kind: errs.KindOf(err), Err: err}
}

// checkSpace makes the directory for what is kept of the new base. One of that number
// can only be what a killed refresh left.
func (x *refreshing) makeBaselineDir(ctx context.Context) error {
	if err := fault.Point(ctx, "make room for the new base"); err != nil {
		return rebaseError(x.baseline.Dir, err)
	}
	err := os.RemoveAll(x.baseline.Dir)
	if err == nil {
		err = os.MkdirAll(x.baseline.Dir, 0o700)
	}
	if err != nil {
		return rebaseError(x.baseline.Dir, err)
	}
	return nil
}

// mergePart merges a part onto the new base, and writes the result on the new fork.
func (x *refreshing) mergePart(ctx context.Context, p compare.Part, a answers) error {
	request := mergeRequest{rec: x.h.Record, choose: a.choose(ctx, x.h.Record), failed: a.failed}
	i := slices.IndexFunc(x.h.Trees, func(t catalog.Tree) bool { return t.Path == p.Tree })
	if p.Frozen {
		request.real = func(p compare.Part) (*os.File, []diff.Change, error) {
			return x.rc.sinceBase(ctx, x.h.Trees[i], x.next.Trees[i].Base, p)
		}
	}
	m, err := x.rc.mergePart(ctx, request, p)
	if err != nil && !p.Workspace && hostfs.Vanished(x.h.Trees[i], x.h.Workspace) {
		x.next.Trees[i] = x.h.Trees[i] // a disk that has just gone: it stays as it is
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
	source := promote.Source{Tree: p.New, Built: m.in.Scratch, In: m.res.Built, From: m.res.From}
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

// leave brings a conflict into the sandbox.
func (x *refreshing) addConflict(ctx context.Context, m *partMerge, c merge.Conflict, fork *os.File) error {
	told := m.conflict(c)
	entry := refreshConflict{
		Path: told.Path, Kind: c.Kind, Why: c.Why, Marked: c.Marked, Alone: c.Alone, MineName: m.in.MineName, RealName: m.in.RealName,
		MinePath: told.MinePath, RealPath: told.RealPath, Also: told.Also,
	}
	var err error
	if c.Marked {
		err = x.writeMarked(ctx, m, c, &entry, fork)
	} else {
		err = restoreMine(ctx, m, c, fork)
	}
	x.list.Conflicts = append(x.list.Conflicts, entry)
	return err
}

// asMine makes the places of a conflict what the sandbox has there.
func restoreMine(ctx context.Context, m *partMerge, c merge.Conflict, fork *os.File) error {
	if c.Alone { // the sandbox may have the directory elsewhere
		change := diff.Change{Path: c.Path, Kind: diff.Modified, What: diff.Mode | diff.Owner | diff.Xattrs, Old: c.Real, New: c.Mine}
		return promote.Replay(ctx, fork, promote.Source{Tree: m.Part.New}, []diff.Change{change})
	}
	touch := func(path string) snapshot.Candidate { return snapshot.Candidate{Path: path, Tree: true} }
	return copyFrom(ctx, fork, m.Part.New, m.Part.Opt.Skip, each(c.Paths(), touch))
}

// takeFrom makes places of a tree what they are in another. Where that has not the
// directory that one lies in, what lies beside it in the tree stays.
func copyFrom(ctx context.Context, tree, source *os.File, skip func(string) bool, touches []snapshot.Candidate) error {
	changes, err := diff.At(ctx, tree, source, compare.Sequence(touches), diff.Options{Skip: skip, OverlayViews: true})
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

// mark writes a text with both sides between marks, and keeps the versions that it
// was made of.
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
	if c.RealPath != "" { // the sandbox has moved it from there
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

func openAt(tree *os.File, path string) (*os.File, error) {
	l := baseline.RootedReader{Root: tree}
	return l.Open(path)
}

// version keeps one version of a text.
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

// commit makes it so.
func (x *refreshing) commit(ctx context.Context) error {
	if len(x.list.Conflicts) > 0 {
		if err := fault.Point(ctx, "note the conflicts"); err != nil {
			return rebaseError(x.h.Name, err)
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
	return x.rc.sandboxes.Tidy(ctx, x.h.Record) // the old forks go
}

// sinceBase opens a new base of a tree at a part's root, and says what has
// happened there since the old one.
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
		changes, err = diff.At(ctx, old, now, compare.Sequence(touches), part.TreeOptions(rc.compare, b))
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
		return nil, nil, hostfs.LookError(part.Root, err)
	}
	return dir, inside, nil
}

// A forkTree is a fork open for writing.
type forkTree struct {
	rc   *Reconciler
	tree catalog.Tree
	Dir  *os.File // where a part begins
}

// OpenFork opens a fork that nobody uses, at a directory in it.
func (rc *Reconciler) OpenFork(ctx context.Context, t catalog.Tree, dir string) (*forkTree, error) {
	if err := fault.Point(ctx, "open the new fork"); err != nil {
		return nil, rebaseError(dir, err)
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
	return &forkTree{rc: rc, tree: t, Dir: dirs[0]}, nil
}

func (f *forkTree) Close() { f.Dir.Close() }

// Settle closes the fork, and makes what was written there reachable again.
func (f *forkTree) Sync(ctx context.Context) error {
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
