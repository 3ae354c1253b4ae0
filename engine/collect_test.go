package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A preforking backend says that its captures flush to disk, counts what is looked up, and notes of which snapshots
// it shall make forks in advance.
type preforking struct {
	snapshot.Backend
	*seen
}

type seen struct {
	sync.Mutex
	lookups   int
	preforked []snapshot.ID
}

func (s preforking) Facts() snapshot.Facts {
	f := s.Backend.Facts()
	f.Flushes = true
	return f
}

func (s preforking) Lookup(ctx context.Context, id snapshot.ID) (snapshot.Snapshot, error) {
	s.Lock()
	s.lookups++
	s.Unlock()
	return s.Backend.Lookup(ctx, id)
}

func (s preforking) Prefork(_ context.Context, from snapshot.ID, _ int) error {
	s.preforked = append(s.preforked, from)
	return &errs.Error{Op: "preforking", Kind: errs.ErrNotFound, Err: errors.New("another process has removed it")}
}

// TestCollectionLooksUpOnlyTheNewestSnapshots: the records of sandboxes describe all others. A newest snapshot
// that another process removes before a fork of it is made is no error.
func TestCollectionLooksUpOnlyTheNewestSnapshots(t *testing.T) {
	b := newBench(t)
	got, list := &seen{}, drivers()
	for i := range list {
		open := list[i].Open
		list[i].Open = func(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
			back, err := open(ctx, place)
			if err != nil {
				return nil, err
			}
			return preforking{back, got}, nil
		}
	}
	var err error
	if b.Engine, err = engine.Open(t.Context(), engine.Config{State: b.state, Drivers: list}); err != nil {
		t.Fatal(err)
	}
	b.new("s")
	for i := range 20 {
		if _, err := b.Snapshot(t.Context(), "s", fmt.Sprintf("at%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	got.lookups = 0
	rec, err := b.Catalog().Get("s")
	if err != nil {
		t.Fatal(err)
	}
	newest := rec.Snapshots[19].IDs
	if _, err := b.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got.preforked)
	if !slices.Equal(got.preforked, slices.Sorted(slices.Values(newest))) {
		t.Errorf("forks in advance of %q, want of %q", got.preforked, newest)
	}
	if got.lookups != len(rec.Trees) {
		t.Errorf("%d snapshots looked up, want one of each of %d trees", got.lookups, len(rec.Trees))
	}
}
