package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A metered backend calls before at the start of each Usage.
type metered struct {
	snapshot.Backend
	snapshot.ChangeLister
	before func(context.Context) error
}

func (m metered) Usage(ctx context.Context, fork snapshot.ForkID) (snapshot.Bytes, error) {
	if err := m.before(ctx); err != nil {
		return 0, err
	}
	return m.ChangeLister.Usage(ctx, fork)
}

// metering opens another engine on b's state directory, with metered backends.
func (b *bench) metering(before func(context.Context) error) *engine.Engine {
	b.t.Helper()
	list := drivers()
	for i := range list {
		open := list[i].Open
		list[i].Open = func(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
			back, err := open(ctx, place)
			if lister, ok := back.(snapshot.ChangeLister); ok {
				return metered{back, lister, before}, err
			}
			return back, err
		}
	}
	e, err := engine.Open(b.t.Context(), engine.Config{State: b.state, Drivers: list})
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// A list waits for no size: what cannot be measured in time is said not to be, and after that no
// other is tried.
func TestAListMeasuresWithinItsBudget(t *testing.T) {
	b := newBench(t)
	b.stand()
	for _, name := range []string{"one", "two", "three"} {
		b.new(name)
	}
	slow, tried := true, 0
	e := b.metering(func(ctx context.Context) error {
		if tried++; !slow {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	infos, err := e.List(ctx, false)
	if err != nil || len(infos) != 3 || tried > len(infos[0].Trees) {
		t.Errorf("%d of 3 listed, %d measured, %v", len(infos), tried, err)
	}
	for _, i := range infos {
		if i.Measured || i.Size != -1 {
			t.Errorf("%s has %v, measured %t", i.Name, i.Size, i.Measured)
		}
	}
	slow = false
	if infos, err = e.List(ctx, true); err != nil || len(infos) != 3 {
		t.Errorf("%d of 3 listed, %v", len(infos), err)
	}
	for _, i := range infos {
		if !i.Measured || i.Size < 0 || !i.Drift.Known {
			t.Errorf("%s has %v, measured %t, drift %+v", i.Name, i.Size, i.Measured, i.Drift)
		}
	}
}

// A list does not fail where a sandbox is removed, replaced or rolled back while it is described.
func TestAListIsWholeWhileSandboxesChange(t *testing.T) {
	b := newBench(t)
	b.stand()
	b.new("other")
	for what, change := range map[string]func() error{
		"removed": func() error { return b.Remove(t.Context(), "one") },
		"replaced": func() error {
			err := b.Remove(t.Context(), "one")
			b.new("one")
			return err
		},
		"rolled back": func() error { return b.Rollback(t.Context(), "one", "") },
	} {
		b.new("one")
		b.in("one", "echo mine > mine")
		changed := false
		e := b.metering(func(context.Context) error {
			if changed {
				return nil
			}
			changed = true
			return change()
		})
		if infos, err := e.List(t.Context(), false); err != nil || len(infos) == 0 || !changed {
			t.Errorf("%s: %d listed, changed %t, %v", what, len(infos), changed, err)
		}
		if err := b.Remove(t.Context(), "one"); (err != nil) != (what == "removed") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestALongListMeasuresIdleSandboxesOnce: the sizes of sandboxes in which nothing has run since are those of an
// earlier list. A command in one has that one measured again, and a list of all sizes measures all.
func TestALongListMeasuresIdleSandboxesOnce(t *testing.T) {
	b := newBench(t)
	b.stand()
	b.new("one")
	const more = 70
	rec, err := b.Catalog().Get("one")
	if err != nil {
		t.Fatal(err)
	}
	for i := range more { // records of the same forks
		other := *rec
		other.ID, other.Name = catalog.NewID(), fmt.Sprintf("other%d", i)
		if err := b.Catalog().Create(&other); err != nil {
			t.Fatal(err)
		}
	}
	tried := 0
	e := b.metering(func(context.Context) error {
		tried++
		return nil
	})
	list := func(all bool) (infos []engine.Info) {
		t.Helper()
		tried = 0
		infos, err := e.List(t.Context(), all)
		if err != nil || len(infos) != more+1 || infos[0].Name != "one" {
			t.Fatalf("%d of %d listed, %v", len(infos), more+1, err)
		}
		return infos
	}
	known := func() engine.Info { // when the size of each is saved
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			list(true)
			if tried < more {
				t.Fatalf("a list of all sizes has measured %d", tried)
			}
			if infos := list(false); tried == 0 && infos[0].Measured { // else the time for sizes was over
				return infos[0]
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d forks are still measured for each list", tried)
			}
		}
	}
	in := func(script string) {
		t.Helper()
		b.in("one", script)
		if err := b.Supervise.Stop(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
	}
	empty := known().Size
	in("head -c 2000000 /dev/urandom > large")
	if full := known().Size; full < empty+2000000 {
		t.Errorf("the size is %v with a file of 2 MB, and was %v", full, empty)
	}
	in("rm large")
	if now := list(false)[0]; now.Measured && (now.Size >= empty+2000000 || tried == 0) {
		t.Errorf("the size is %v without the file, and was %v; %d forks were measured", now.Size, empty, tried)
	}
}
