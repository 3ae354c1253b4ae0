package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/run"
)

// Collected is what a collection found.
type Collected struct {
	// Mended is the number of sandboxes that killed commands had left.
	Mended int `json:"mended"`
	// Snapshots is the number of bases that no sandbox refers to any more.
	Snapshots int `json:"snapshots"`
}

// Collect removes what nothing refers to and gives all space back, at a
// bounded rate, until that is done or ctx ends. One process collects at a
// time: when another does, there is nothing left to do here.
func (e *Engine) Collect(ctx context.Context) (Collected, error) {
	var c Collected
	lock, err := e.sweepLock()
	if lock == nil {
		return c, err
	}
	defer lock.Close()
	before, err := e.cat.Stale(true)
	if err != nil {
		return c, err
	}
	c.Mended = len(before)
	if err := e.mend(ctx, true); err != nil {
		return c, err
	}
	if found, _ := e.cat.Trash(); len(found) > 0 {
		if err := e.reclaimTrees(ctx, found); err != nil {
			return c, err
		}
	}
	backends, err := e.everyBackend(ctx)
	for _, b := range backends {
		n, cerr := e.collectBases(ctx, b)
		c.Snapshots += n
		err = errors.Join(err, cerr, sweep(ctx, b), e.stock(ctx, b))
	}
	return c, err
}

func sweep(ctx context.Context, b snapshot.Backend) error {
	if s, ok := b.(snapshot.Sweeper); ok {
		return s.Sweep(ctx)
	}
	return nil
}

// stock puts a ready-made fork of the newest base by, for the next command.
func (e *Engine) stock(ctx context.Context, b snapshot.Backend) error {
	s, ok := b.(snapshot.Stocker)
	if !ok {
		return nil
	}
	newest, err := newestOfEachTree(ctx, b)
	for _, id := range newest {
		err = errors.Join(err, s.Stock(ctx, id, 1))
	}
	return err
}

// sweepLock is held by the one process that collects; nil when another does.
func (e *Engine) sweepLock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(e.cat.Dir(), "sweeping"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &snapshot.Error{Op: "collecting", Path: e.cat.Dir(), Kind: snapshot.KindOf(err), Err: err}
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

// sweepLater starts a collection that outlives this command, or collects now
// where there is nothing to start.
func (e *Engine) sweepLater() error {
	if len(e.sweeper) == 0 {
		_, err := e.Collect(context.Background())
		return err
	}
	args := append(append([]string{}, e.sweeper...), e.cat.Dir())
	if _, err := run.Background(args, nil); err != nil {
		return &snapshot.Error{Op: "starting to clean up", Kind: snapshot.KindOf(err), Err: err, Hints: []string{"snapfs gc"}}
	}
	return nil
}

// everyBackend opens each backend that holds anything: once for those whose
// data lies in the state directory, once a place for the others.
func (e *Engine) everyBackend(ctx context.Context) ([]snapshot.Backend, error) {
	records, errs := e.cat.List()
	places, err := e.cat.Places()
	errs = append(errs, err)
	for _, r := range records {
		for _, t := range r.Trees {
			places = append(places, catalog.Place{Driver: t.Driver, Path: t.Path})
		}
	}
	for _, d := range e.drivers {
		if _, err := os.Stat(e.cat.DataDir(d.Name)); err == nil {
			places = append(places, catalog.Place{Driver: d.Name, Path: "/"})
		}
	}
	seen := map[string]bool{}
	var found []snapshot.Backend
	for _, p := range places {
		b, err := e.backendOf(ctx, catalog.Tree{Driver: p.Driver, Path: p.Path})
		if err != nil {
			continue // not of a kind this driver holds, or gone
		}
		key := p.Driver
		if h, ok := b.(snapshot.Hider); ok {
			for _, path := range h.Hidden() {
				key += " " + path
			}
		}
		if !seen[key] {
			seen[key], found = true, append(found, b)
		}
	}
	return found, errors.Join(errs...)
}

// collectBases removes the snapshots whose sandbox is gone and which no other
// refers to. The newest of each tree stays: it may serve the next command.
func (e *Engine) collectBases(ctx context.Context, b snapshot.Backend) (int, error) {
	release, err := e.cat.Exclude()
	if err != nil {
		return 0, err
	}
	defer release()
	records, errs := e.cat.List()
	if len(errs) > 0 {
		return 0, errors.Join(errs...) // what cannot be read may refer to anything
	}
	used, owners := map[snapshot.ID]bool{}, map[string]bool{}
	for _, r := range records {
		owners[r.ID] = true
		for _, t := range r.Trees {
			used[t.Base] = true
		}
	}
	ids, _, err := b.List(ctx)
	if err != nil {
		return 0, err
	}
	if b.Facts().Flushes {
		newest, err := newestOfEachTree(ctx, b)
		if err != nil {
			return 0, err
		}
		for _, id := range newest {
			used[id] = true
		}
	}
	n := 0
	for _, id := range ids {
		if !used[id] && !owners[catalog.Owner(id)] {
			if err := b.Remove(ctx, id); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
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
