package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/stages"
)

// unclaimed runs a command, and keeps its sandbox although nobody asked for that.
func (b *bench) unclaimed(limits catalog.Limits) *catalog.Record {
	b.t.Helper()
	req := b.request()
	req.Policy.Limits = limits
	s, err := b.Run(b.t.Context(), req, b.command("echo x > new"))
	if err == nil {
		_, err = s.Wait(b.t.Context())
	}
	if err == nil {
		_, err = s.KeepUnclaimed(b.t.Context(), false)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.removeLater(s.Record.Name)
	return s.Record
}

// weighs makes an unclaimed sandbox one that stores so many bytes.
func (b *bench) weighs(name string, size int64) {
	b.t.Helper()
	h, err := b.Catalog().Lock(b.t.Context(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	defer h.Release()
	h.Run.Size = size
	if err := h.Save(); err != nil {
		b.t.Fatal(err)
	}
}

// Of sandboxes that nobody claims the oldest go beyond the bound of their size, but for one in
// which something runs and one that a promotion needs. Cost: 0.5 s.
func TestUnclaimedSandboxesAreBounded(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		running, promoted, claimed, oldest := b.unclaimed(catalog.Limits{}), b.unclaimed(catalog.Limits{}), b.unclaimed(catalog.Limits{}), b.unclaimed(catalog.Limits{})
		if running.Run.Size <= 0 {
			t.Errorf("a sandbox with a file stores %d bytes", running.Run.Size)
		}
		b.in(running.Name, "sleep 600 >/dev/null 2>&1 &")
		defer func() {
			if err := b.Supervise.Stop(context.Background(), running.Name); err != nil {
				t.Error(err)
			}
		}()
		open := &stages.Pipeline{ID: catalog.NewID(), Sandbox: promoted.Name, SandboxID: promoted.ID, State: stages.PipelineOpen}
		lock, err := b.Stages.Begin(open)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if l, err := b.Claim(t.Context(), claimed.Name); err != nil || l.RemoveAfter != 0 {
			t.Errorf("remove-after is %v: %v", l.RemoveAfter, err)
		}
		for _, r := range []*catalog.Record{running, promoted, claimed, oldest} {
			b.weighs(r.Name, int64(engine.MaxUnclaimedSize))
		}
		newest := b.unclaimed(catalog.Limits{})
		names, err := b.Names()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{running.Name, promoted.Name, claimed.Name, newest.Name}
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%q stay, want %q", names, want)
		}
		open.State = stages.PipelineDone
		if err := b.Stages.Save(open); err != nil {
			t.Error(err)
		}
	})
}

// A sandbox that nobody claims stays for a day after the run, and not less by a ttl.
func TestAnUnclaimedSandboxStaysForADay(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			limits   catalog.Limits
			own, age time.Duration
		}{
			{catalog.Limits{}, engine.UnclaimedFor, engine.UnclaimedFor},
			{catalog.Limits{TTL: 2 * time.Hour}, engine.UnclaimedFor, 26 * time.Hour},
			{catalog.Limits{RemoveAfter: time.Hour}, 0, time.Hour},
		} {
			r := b.unclaimed(c.limits)
			if got := r.Policy.Limits.RemovalAge(); r.Run.RemoveAfter != c.own || got != c.age {
				t.Errorf("%+v: run has set %v, and it is removed at the age of %v", c.limits, r.Run.RemoveAfter, got)
			}
		}
	})
}
