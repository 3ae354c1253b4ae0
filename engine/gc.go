package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// Collected is the result of [Engine.Collect], a garbage collection: how much it repaired and removed.
type Collected struct {
	// Mended is the number of sandboxes whose unfinished work of killed commands was completed
	// or undone.
	Mended int `json:"mended"`
	// Snapshots is the number of removed bases that no sandbox referred to.
	Snapshots int `json:"snapshots"`
}

// Collect is the garbage collection: it removes snapshots, forks and other data that no sandbox refers to and
// frees their space, at a bounded rate, until that is done or ctx ends. Only one process collects at a time;
// if another one does, Collect returns at once. A failure with one object does not stop the others; the
// errors are joined.
func (e *Engine) Collect(ctx context.Context) (Collected, error) {
	var c Collected
	lock, err := e.Sandboxes.SweepLock()
	if lock == nil {
		return c, err
	}
	defer lock.Close()
	before, err := e.cat.Stale(true)
	if err != nil {
		return c, err
	}
	c.Mended = len(before)
	failures := []error{e.mend(ctx, true), e.noteAgain()}
	if e.expire != nil {
		failures = append(failures, e.expire(e))
	}
	found, terrs := e.cat.Trash()
	failures = append(failures, terrs...)
	for _, d := range found {
		failures = append(failures, e.Sandboxes.ReclaimOne(ctx, d))
	}
	failures = append(failures, isolate.PruneImages(e.cat.Images()))
	e.Baseline.PruneDisplaced(0)
	all := e.cat.ReadAll(nil)
	e.Baseline.PruneManifests(all)
	backends, err := e.Host.EveryBackend(ctx, all.Records)
	failures = append(append(failures, all.Failures...), err)
	newest, err := e.collectLost(ctx, backends, all, &c)
	failures = append(failures, err)
	for i, b := range backends {
		failures = append(failures, sandbox.WithRepair(b.Sweep(ctx), all.Records), sandbox.Stock(ctx, b, newest[i]))
	}
	return c, errors.Join(failures...)
}

// collectLost removes from all backends the snapshots and forks that no sandbox uses, and counts the removed
// snapshots in c. It reads each sandbox's entry of the catalogue once, except those that all, an earlier listing,
// has as they are. For each backend it returns the newest snapshot of each tree, if the backend makes use of
// them.
func (e *Engine) collectLost(ctx context.Context, backends []snapshot.Backend, all *catalog.Listing, c *Collected) ([][]snapshot.ID, error) {
	newest := make([][]snapshot.ID, len(backends))
	release, err := e.cat.Exclude() // no fork begins meanwhile
	defer release()
	if err != nil {
		return newest, err
	}
	owned, err := e.owned(all)
	if err != nil {
		return newest, err // an unreadable record may own anything
	}
	var failures []error
	for i, b := range backends {
		ids, forks, err := b.List(ctx)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if _, preforks := b.(snapshot.Preforker); preforks || b.Facts().Flushes {
			newest[i] = owned.newestOfEachTree(ctx, b, ids)
		}
		n, err := removeLost(ctx, b, owned, ids, forks, newest[i])
		c.Snapshots += n
		failures = append(failures, err)
	}
	return newest, errors.Join(failures...)
}

// removeLost removes those of the snapshots ids and the forks of one backend that no sandbox uses, and returns
// the number of removed snapshots. If the backend flushes to disk to take a snapshot, removeLost leaves the
// snapshots newest, because the next command may use them. The caller holds the catalogue's exclusive lock.
func removeLost(ctx context.Context, b snapshot.Backend, owned *ownership, ids []snapshot.ID, forks []snapshot.ForkID, newest []snapshot.ID) (int, error) {
	if b.Facts().Flushes {
		for _, id := range newest {
			owned.used[id] = true
		}
	}
	n, err := removeUnused(ctx, b, ids, owned)
	for _, id := range forks {
		if !owned.owners[catalog.Owner(string(id))] {
			err = errors.Join(err, b.RemoveFork(ctx, id))
		}
	}
	return n, err
}

// removeUnused removes each of the snapshots ids that no sandbox uses now, if the sandbox that it was made
// for is removed or has another base since. It returns the number of removed snapshots; one that cannot be removed does
// not stop the others. The caller holds the catalogue's exclusive lock, so that no process forks them meanwhile.
func removeUnused(ctx context.Context, b snapshot.Backend, ids []snapshot.ID, o *ownership) (n int, err error) {
	for _, id := range ids {
		if o.used[id] || o.owners[catalog.Owner(string(id))] && !o.past[id] {
			continue
		}
		if rerr := b.Remove(ctx, id); rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		n++
	}
	return n, err
}

// An ownership answers for a garbage collection whether a sandbox still uses a snapshot or fork of a backend.
// It is read from the catalogue, including the sandboxes whose removal has begun (the trash).
type ownership struct {
	used   map[snapshot.ID]bool // bases that sandboxes refer to
	past   map[snapshot.ID]bool // earlier bases of sandboxes
	owners map[string]bool      // the ids of all sandboxes, those in the trash included
	// states are the snapshots that the records describe.
	states map[snapshot.ID]recordedSnapshot
}

// A recordedSnapshot is what a sandbox's record says of a snapshot: of which tree, and from when.
type recordedSnapshot struct {
	tree  string
	taken time.Time
}

// owned reads the catalogue for an [ownership]. It takes records that have not changed since from all, an
// earlier listing, which may be nil.
func (e *Engine) owned(all *catalog.Listing) (*ownership, error) {
	o := &ownership{
		used: map[snapshot.ID]bool{}, past: map[snapshot.ID]bool{},
		owners: map[string]bool{}, states: map[snapshot.ID]recordedSnapshot{},
	}
	now := e.cat.ReadAll(all)
	found, terrs := e.cat.Trash()
	for _, d := range found {
		d.Release()
		o.owners[d.ID] = true
	}
	for _, r := range now.Records {
		o.add(r)
	}
	return o, errors.Join(append(now.Failures, terrs...)...)
}

func (o *ownership) add(r *catalog.Record) {
	o.owners[r.ID] = true
	for id := range r.Bases() {
		o.used[id] = true
	}
	for _, id := range r.Past {
		o.past[id] = true
	}
	for _, t := range r.Trees {
		o.states[t.Base] = recordedSnapshot{t.Path, t.Taken}
	}
	for _, m := range r.Snapshots {
		for i, id := range m.IDs {
			if i < len(r.Trees) {
				o.states[id] = recordedSnapshot{r.Trees[i].Path, m.Taken}
			}
		}
	}
}

// newestOfEachTree returns the newest of the snapshots ids of b for each tree. It looks up those that no record
// of the catalogue describes, and of the others the newest of each tree.
func (o *ownership) newestOfEachTree(ctx context.Context, b snapshot.Backend, ids []snapshot.ID) []snapshot.ID {
	byTree := map[string][]snapshot.ID{}
	newest := map[string]snapshot.Snapshot{}
	lookUp := func(id snapshot.ID) bool {
		s, err := b.Lookup(ctx, id)
		if err != nil {
			return false // half-made
		}
		if old, ok := newest[s.Tree.Path]; !ok || s.Taken.After(old.Taken) {
			newest[s.Tree.Path] = s
		}
		return true
	}
	for _, id := range ids {
		if s, ok := o.states[id]; ok {
			byTree[s.tree] = append(byTree[s.tree], id)
		} else {
			lookUp(id)
		}
	}
	for _, known := range byTree {
		slices.SortFunc(known, func(x, y snapshot.ID) int { return o.states[y].taken.Compare(o.states[x].taken) })
		for _, id := range known {
			if lookUp(id) { // else it is half-made
				break
			}
		}
	}
	var found []snapshot.ID
	for _, s := range newest {
		found = append(found, s.ID)
	}
	return found
}

// AwaitSweeper waits until no other process does a garbage collection in the state directory. Errors:
// ErrInterrupted (ctx ended).
func (e *Engine) AwaitSweeper(ctx context.Context) error {
	for {
		lock, err := e.Sandboxes.SweepLock()
		if err != nil {
			return err
		}
		if lock != nil {
			return lock.Close()
		}
		select {
		case <-ctx.Done():
			return &errs.Error{Op: "waiting for another command to clean up", Kind: errs.ErrInterrupted, Err: ctx.Err()}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// PlacesIn finds backends that store all their data inside dir, for a caller that is about to delete dir. It
// returns a function that removes these backends' locations from the catalogue; the caller calls it when dir
// is gone. Errors: errs.ErrDenied.
func (e *Engine) PlacesIn(ctx context.Context, dir string) (forget func() error, err error) {
	all, err := e.cat.Locations()
	in := slices.DeleteFunc(all, func(p catalog.Location) bool {
		b, err := e.Host.BackendOf(ctx, catalog.Tree{Driver: p.Driver, Path: p.Path})
		return err != nil || b.Facts().Hidden == "" || !hostfs.Within(b.Facts().Hidden, dir)
	})
	return func() error { return e.cat.DropLocations(in) }, err
}

// DropBases removes the bases of a tree that a backend retains for later commands and that no sandbox uses;
// [Engine.Collect] leaves those. It does nothing if the backend driver cannot hold the tree.
func (e *Engine) DropBases(ctx context.Context, driver, tree string) error {
	b, err := e.Host.BackendOf(ctx, catalog.Tree{Driver: driver, Path: tree})
	if errors.Is(err, errs.ErrNotSupported) || errors.Is(err, errs.ErrNotFound) {
		return nil // it cannot hold the tree
	}
	if err != nil {
		return err
	}
	release, err := e.cat.Exclude()
	defer release()
	if err != nil {
		return err
	}
	owned, err := e.owned(nil)
	if err != nil {
		return err
	}
	ids, _, err := b.List(ctx)
	if err != nil {
		return err
	}
	if _, err := removeUnused(ctx, b, ids, owned); err != nil {
		return err
	}
	return b.Sweep(ctx)
}
