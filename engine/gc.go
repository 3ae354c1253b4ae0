package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
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
	e.Baseline.PruneDisplaced(0)
	e.Baseline.PruneManifests()
	backends, err := e.Host.EveryBackend(ctx)
	failures = append(failures, err, e.collectLost(ctx, backends, &c))
	for _, b := range backends {
		failures = append(failures, b.Sweep(ctx), stock(ctx, b))
	}
	return c, errors.Join(failures...)
}

// stock makes one prefork, a fork made in advance, of the newest base of each tree of b, so that the next
// command starts faster. It does nothing if b is no [snapshot.Preforker].
func stock(ctx context.Context, b snapshot.Backend) error {
	s, ok := b.(snapshot.Preforker)
	if !ok {
		return nil
	}
	newest, err := newestOfEachTree(ctx, b)
	for _, id := range newest {
		err = errors.Join(err, s.Prefork(ctx, id, 1))
	}
	return err
}

// collectLost removes from all backends the snapshots and forks that no sandbox uses, and counts the removed
// snapshots in c. It reads each sandbox's entry of the catalogue once.
func (e *Engine) collectLost(ctx context.Context, backends []snapshot.Backend, c *Collected) error {
	release, err := e.cat.Exclude() // no fork begins meanwhile
	defer release()
	if err != nil {
		return err
	}
	owned, err := e.owned()
	if err != nil {
		return err // an unreadable record may own anything
	}
	var failures []error
	for _, b := range backends {
		n, err := removeLost(ctx, b, owned)
		c.Snapshots += n
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// removeLost removes the snapshots and forks of one backend that no sandbox uses, and returns the number of
// removed snapshots. If the backend flushes to disk to take a snapshot, removeLost leaves the newest base of
// each tree, because the next command may use it. The caller holds the catalogue's exclusive lock.
func removeLost(ctx context.Context, b snapshot.Backend, owned *ownership) (int, error) {
	if b.Facts().Flushes {
		newest, err := newestOfEachTree(ctx, b)
		if err != nil {
			return 0, err
		}
		for _, id := range newest {
			owned.used[id] = true
		}
	}
	ids, forks, err := b.List(ctx)
	if err != nil {
		return 0, err
	}
	n, err := removeUnused(ctx, b, ids, owned)
	if err != nil {
		return n, err
	}
	for _, id := range forks {
		if !owned.owners[catalog.Owner(string(id))] {
			err = errors.Join(err, b.RemoveFork(ctx, id))
		}
	}
	return n, err
}

// removeUnused removes each of the snapshots ids that no sandbox uses now, if the sandbox that it was made
// for is removed or has another base since. It returns the number of removed snapshots. The caller holds the
// catalogue's exclusive lock, so that no process forks them meanwhile.
func removeUnused(ctx context.Context, b snapshot.Backend, ids []snapshot.ID, o *ownership) (n int, err error) {
	for _, id := range ids {
		if o.used[id] || o.owners[catalog.Owner(string(id))] && !o.past[id] {
			continue
		}
		if err := b.Remove(ctx, id); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// An ownership answers for a garbage collection whether a sandbox still uses a snapshot or fork of a backend.
// It is read from the catalogue, including the sandboxes whose removal has begun (the trash).
type ownership struct {
	used   map[snapshot.ID]bool // bases that sandboxes refer to
	past   map[snapshot.ID]bool // earlier bases of sandboxes
	owners map[string]bool      // the ids of all sandboxes, those in the trash included
}

func (e *Engine) owned() (*ownership, error) {
	o := &ownership{map[snapshot.ID]bool{}, map[snapshot.ID]bool{}, map[string]bool{}}
	records, failures := e.cat.List()
	found, terrs := e.cat.Trash()
	for _, d := range found {
		d.Release()
		o.owners[d.ID] = true
	}
	for _, r := range records {
		o.owners[r.ID] = true
		for id := range r.Bases() {
			o.used[id] = true
		}
		for _, id := range r.Past {
			o.past[id] = true
		}
	}
	return o, errors.Join(append(failures, terrs...)...)
}

func newestOfEachTree(ctx context.Context, b snapshot.Backend) (map[string]snapshot.ID, error) {
	ids, _, err := b.List(ctx)
	if err != nil {
		return nil, err
	}
	newest := map[string]snapshot.Snapshot{}
	for _, id := range ids {
		s, err := b.Lookup(ctx, id)
		if err != nil {
			continue // half-made
		}
		if old, ok := newest[s.Tree.Path]; !ok || s.Taken.After(old.Taken) {
			newest[s.Tree.Path] = s
		}
	}
	found := map[string]snapshot.ID{}
	for tree, s := range newest {
		found[tree] = s.ID
	}
	return found, nil
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
	owned, err := e.owned()
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
