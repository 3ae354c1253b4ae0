package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A ledger is overlays that write down to which limit of the disk they are held.
type ledger struct {
	*overlay.Backend
	book *book
}

type book struct {
	mu     sync.Mutex
	last   map[snapshot.ForkID]snapshot.Bytes
	most   snapshot.Bytes
	refuse snapshot.Bytes // a limit that only the first trees are held to, of which
	before int            // there are so many
	broken bool           // nothing can be mounted
}

func (l ledger) CanLimit(context.Context, snapshot.DiskLimit) error { return nil }
func (l ledger) LimitPlace() string                                 { return "ledger" }

func (l ledger) LimitFork(_ context.Context, fork snapshot.ForkID, d snapshot.DiskLimit) error {
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	if d.Bytes == l.book.refuse {
		if l.book.before--; l.book.before < 0 {
			return errors.New("refused")
		}
	}
	l.book.last[fork], l.book.most = d.Bytes, max(l.book.most, d.Bytes)
	return nil
}

func (l ledger) Gauge(context.Context, snapshot.ForkID) (snapshot.DiskLimit, error) {
	return snapshot.DiskLimit{}, nil
}

func (l ledger) LookupFork(ctx context.Context, id snapshot.ForkID) (snapshot.Fork, error) {
	f, err := l.Backend.LookupFork(ctx, id)
	if f.View.Overlay != nil && l.book.broken {
		f.View.Overlay.Upper += "-gone"
	}
	return f, err
}

// all is the one limit that every fork is held to, or -1.
func (k *book) all() snapshot.Bytes {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := snapshot.Bytes(-1)
	for _, l := range k.last {
		if one >= 0 && l != one {
			return -1
		}
		one = l
	}
	return one
}

// keepBook has a bench use ledgers.
func (b *bench) keepBook() *book {
	b.t.Helper()
	k := &book{last: map[snapshot.ForkID]snapshot.Bytes{}, refuse: -1}
	d := overlay.Driver
	d.Open = func(ctx context.Context, p snapshot.Place) (snapshot.Backend, error) {
		one, err := overlay.Open(ctx, p)
		if held, ok := one.(*overlay.Backend); ok {
			return ledger{held, k}, nil
		}
		return one, err
	}
	var err error
	b.Engine, err = engine.Open(b.t.Context(), engine.Config{State: b.state, Drivers: []snapshot.Driver{d}, Supervisor: []string{"/proc/self/exe", "keeper"}})
	if err != nil {
		b.t.Fatal(err)
	}
	return k
}

func TestLimitsThatAreRefusedLeaveThatOfTheDisk(t *testing.T) {
	treetest.NeedRoot(t)
	b := newBench(t)
	k := b.keepBook()
	req := b.request()
	req.Name, req.Policy.Limits.Disk = "s", 1<<20
	if _, err := b.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b.removeLater("s")
	talk := b.talk("s")
	set := func(files int64) error {
		_, err := b.Supervise.SetLimits(t.Context(), "s", func(l *engine.Limits) error { l.Disk, l.Files = 2<<20, files; return nil })
		return err
	}
	if err := set(100); !errors.Is(err, errs.ErrNotSupported) { // what runs has its files already
		t.Errorf("limits that cannot be changed: %v", err)
	}
	if got := k.all(); got != 1<<20 || k.most != 2<<20 {
		t.Errorf("refused by the keeper: the disk is held to %v", got)
	}
	k.refuse, k.before = 2<<20, len(k.last)-1
	if err := set(0); err == nil {
		t.Error("limits that the backend refuses")
	}
	if got := k.all(); got != 1<<20 {
		t.Errorf("refused by the backend: the disk is held to %v", got)
	}
	talk.ends()
}

func TestAStartThatFailsLeavesTheLimitOfTheDisk(t *testing.T) {
	treetest.NeedRoot(t)
	b := newBench(t)
	k := b.keepBook()
	k.broken = true
	req := b.request()
	req.Policy.Limits.Disk = 1 << 20
	if _, err := b.Run(t.Context(), req, b.command("true")); err == nil {
		t.Fatal("a sandbox started without its trees")
	}
	if got := k.all(); got != 1<<20 || k.most <= 1<<20 {
		t.Errorf("the disk is held to %v, and was to %v", got, k.most)
	}
}
