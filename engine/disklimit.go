package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
)

// limitTrees has the forks of a sandbox, which hold no more than some limits say, hold
// no more than others do: all of them, or none.
func (e *Engine) limitTrees(ctx context.Context, rec *catalog.Record, was, now catalog.Limits) error {
	if limitsIO(now) && !limitsIO(was) {
		if err := e.noneServed(ctx, rec); err != nil {
			return err
		}
	}
	if diskLimit(now) == diskLimit(was) {
		return nil
	}
	for i, t := range rec.Trees {
		if err := e.limitTree(ctx, rec, t, now); err != nil {
			for _, done := range rec.Trees[:i] {
				err = errors.Join(err, e.limitTree(context.WithoutCancel(ctx), rec, done, was))
			}
			return err
		}
	}
	return nil
}

// limitForks has the forks of a sandbox hold no more than the limits say.
func (e *Engine) limitForks(ctx context.Context, rec *catalog.Record, l catalog.Limits) error {
	for _, t := range rec.Trees {
		if err := e.limitTree(ctx, rec, t, l); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) limitTree(ctx context.Context, rec *catalog.Record, t catalog.Tree, l catalog.Limits) error {
	b, err := e.backendOf(ctx, t)
	if err != nil {
		return err
	}
	return limitFork(ctx, b, t.Fork, rec.ID, l)
}

// entering is what the kernel may need to mount a tree that is full to its limit.
const entering = 1 << 20

// makeRoom raises the limit of a full sandbox, as long as its trees are being
// mounted. The caller takes it back. Should this process be killed meanwhile, the next
// start does.
func (e *Engine) makeRoom(ctx context.Context, rec *catalog.Record) error {
	l := rec.Policy.Limits
	for _, t := range rec.Trees {
		b, err := e.backendOf(ctx, t)
		if err != nil {
			return err
		}
		if g, ok := b.(snapshot.Gauge); ok {
			used, err := g.Gauge(ctx, t.Fork)
			if err != nil {
				return err
			}
			if l.Disk > 0 {
				l.Disk = max(l.Disk, int64(used.Bytes))
			}
		}
	}
	if l.Disk > 0 {
		l.Disk += entering
	}
	if l.Inodes > 0 {
		l.Inodes += entering >> 12
	}
	return e.limitForks(ctx, rec, l)
}

// tendEvery is how often what holds the trees of a box looks after itself.
const tendEvery = 10 * time.Second

// tend has the backends of a sandbox look after themselves while its box lives, where
// they need to. The answer ends it.
func (e *Engine) tend(rec *catalog.Record) (stop func()) {
	var tenders []snapshot.Tender
	for _, t := range rec.Trees {
		if b, err := e.backendOf(context.Background(), t); err == nil {
			if tender, ok := b.(snapshot.Tender); ok {
				tenders = append(tenders, tender)
			}
		}
	}
	if len(tenders) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Go(func() {
		every := time.NewTicker(tendEvery)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			for _, t := range tenders {
				if err := t.Tend(ctx); err != nil && ctx.Err() == nil {
					e.notice("what " + rec.Name + " may add is as it was: " + err.Error())
					return
				}
			}
		}
	})
	return func() { cancel(); runs.Wait() }
}

// gaugeOf answers with what tells how much counts for a sandbox's limit of the disk.
func (e *Engine) gaugeOf(rec *catalog.Record) func() (used snapshot.DiskLimit, known bool) {
	trees := slices.Clone(rec.Trees)
	return func() (snapshot.DiskLimit, bool) {
		for _, t := range trees { // which share it, where there are several
			b, err := e.backendOf(context.Background(), t)
			if err != nil {
				continue
			}
			if g, ok := b.(snapshot.Gauge); ok {
				used, err := g.Gauge(context.Background(), t.Fork)
				return used, err == nil
			}
		}
		return snapshot.DiskLimit{}, false
	}
}

// fitsDisk refuses a limit of the disk that is below what the trees of a sandbox have added
// already: nothing could be started in it, and most that is there could not be removed.
func (e *Engine) fitsDisk(rec *catalog.Record, l catalog.Limits) error {
	if !limitsDisk(l) || diskLimit(l) == diskLimit(rec.Policy.Limits) {
		return nil
	}
	used, known := e.gaugeOf(rec)()
	refuse := func(limit, text, least string) error {
		return &errs.Error{
			Op: "limiting " + limit, Path: rec.Name, Kind: errs.ErrBusy, Err: errors.New(text + " in use"),
			Hints: []string{"snapfs limits " + rec.Name + " --set " + limit + "=" + least},
		}
	}
	switch {
	case known && l.Disk > 0 && int64(used.Bytes) > l.Disk:
		return refuse("disk", units.SizeText(int64(used.Bytes))+" are", units.FormatSize((int64(used.Bytes)+entering-1)/entering*entering))
	case known && l.Inodes > 0 && used.Inodes > l.Inodes:
		return refuse("inodes", units.FormatCount(used.Inodes)+" are", units.FormatCount(used.Inodes))
	}
	return nil
}

// brimful is how little is left of a limit of the disk that is used up: less than a
// filesystem wants for a new file.
const brimful = 256 << 10

// full is the limit of the disk, where it is used up, or nil.
func (a *allowance) full() *catalog.Hit {
	if a.disk == nil || !limitsDisk(a.p) {
		return nil
	}
	used, known := a.disk()
	switch {
	case !known:
	case a.p.Disk > 0 && int64(used.Bytes) > a.p.Disk-brimful:
		return &catalog.Hit{
			Limit: "disk", Value: units.FormatSize(a.p.Disk), Text: "disk: " + units.SizeText(a.p.Disk) + " used up", When: time.Now(),
		}
	case a.p.Inodes > 0 && used.Inodes >= a.p.Inodes:
		return &catalog.Hit{
			Limit: "inodes", Value: units.FormatCount(a.p.Inodes), Text: "inodes: " + units.FormatCount(a.p.Inodes) + " used up", When: time.Now(),
		}
	}
	return nil
}

// diskUsage adds what counts for the limits of the disk to what processes use.
func (a *allowance) diskUsage(u *Usage) {
	a.mu.Lock()
	l := a.p
	a.mu.Unlock()
	if a.disk == nil || !limitsDisk(l) {
		return
	}
	used, known := a.disk()
	if n := int64(used.Bytes); known && l.Disk > 0 {
		u.Disk, u.DiskLimit = &n, &l.Disk
	}
	if known && l.Inodes > 0 {
		u.Inodes, u.InodesLimit = &used.Inodes, &l.Inodes
	}
}

// limitFork holds a fork to what a sandbox may write, all of its forks together
// where the backend can do that: choose has seen to it that it is needed nowhere
// else.
func limitFork(ctx context.Context, b snapshot.Backend, fork snapshot.ForkID, sandbox string, l catalog.Limits) error {
	limiter, ok := b.(snapshot.Limiter)
	if !ok {
		return errUnlimited()
	}
	d := diskLimit(l)
	if limitPlace(b) != "" && limitsDisk(l) {
		d.Share = sandbox
	}
	return limiter.LimitFork(ctx, fork, d)
}

// canLimit says why a backend cannot hold its forks to a limit, or nil.
func canLimit(ctx context.Context, b snapshot.Backend, l snapshot.DiskLimit) error {
	p, ok := b.(snapshot.LimitProber)
	if !ok {
		return errUnlimited()
	}
	return p.CanLimit(ctx, l)
}

func diskLimit(l catalog.Limits) snapshot.DiskLimit {
	return snapshot.DiskLimit{Bytes: snapshot.Bytes(l.Disk), Inodes: l.Inodes}
}

func limitsDisk(l catalog.Limits) bool { return diskLimit(l) != (snapshot.DiskLimit{}) }

func (r *Request) limitsDisk() bool { return limitsDisk(r.Policy.Limits) }

// limitsIO: what processes read from disks and write to them is limited.
func limitsIO(l catalog.Limits) bool {
	return l.ReadRate != 0 || l.WriteRate != 0 || l.ReadOps != 0 || l.WriteOps != 0
}

// noneServed refuses where a process outside of the sandbox reads and writes for it.
func (e *Engine) noneServed(ctx context.Context, rec *catalog.Record) error {
	for _, t := range rec.Trees {
		b, err := e.backendOf(ctx, t)
		if err != nil {
			return err
		}
		if b.Facts().Served {
			return &errs.Error{Op: "limiting", Component: t.Driver, Path: t.Path, Kind: errs.ErrNotSupported, Err: errServed()}
		}
	}
	return nil
}

// errServed: of no use where what is read and written is limited.
func errServed() error {
	return fmt.Errorf("a process outside of the sandbox reads and writes for it, which no limit on that holds: %w", errs.ErrNotSupported)
}

func errUnlimited() error {
	return &errs.Error{
		Op: "limiting the disk", Kind: errs.ErrNotSupported,
		Err: errors.New("it cannot limit what a sandbox writes"), Hints: []string{"snapfs pool create"},
	}
}
