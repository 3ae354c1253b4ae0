package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
)

// LimitTrees changes the disk limits of all forks of a sandbox from those of was to those of now. After an
// error all forks have the old limits again.
func (sb *Store) LimitTrees(ctx context.Context, rec *catalog.Record, was, now catalog.Limits) error {
	if hostfs.LimitsIO(now) && !hostfs.LimitsIO(was) {
		if err := sb.noneServed(ctx, rec); err != nil {
			return err
		}
	}
	if hostfs.DiskLimit(now) == hostfs.DiskLimit(was) {
		return nil
	}
	for i, t := range rec.Trees {
		if err := sb.limitTree(ctx, rec, t, now); err != nil {
			for _, done := range rec.Trees[:i] {
				err = errors.Join(err, sb.limitTree(context.WithoutCancel(ctx), rec, done, was))
			}
			return err
		}
	}
	return nil
}

// LimitForks sets the disk limits of all forks of a sandbox to those of l. After an error some of the forks
// may have the new limit.
func (sb *Store) LimitForks(ctx context.Context, rec *catalog.Record, l catalog.Limits) error {
	for _, t := range rec.Trees {
		if err := sb.limitTree(ctx, rec, t, l); err != nil {
			return err
		}
	}
	return nil
}

// limitTree sets the disk limit of the sandbox's fork of the tree t to that of l.
func (sb *Store) limitTree(ctx context.Context, rec *catalog.Record, t catalog.Tree, l catalog.Limits) error {
	b, err := sb.host.BackendOf(ctx, t)
	if err != nil {
		return err
	}
	return limitFork(ctx, b, t.Fork, rec.ID, l)
}

// mountHeadroom is the disk space in bytes that the kernel may need in a fork to mount it when the fork is at
// its disk limit.
const mountHeadroom = 1 << 20

// RaiseDiskLimit sets the disk limit of a full sandbox's forks higher by [mountHeadroom], so that they can be
// mounted. It adds that to the limit or, if that is higher, to the usage. The caller restores the limit
// afterwards; if this process is killed, the next start does.
func (sb *Store) RaiseDiskLimit(ctx context.Context, rec *catalog.Record) error {
	l := rec.Policy.Limits
	for _, t := range rec.Trees {
		b, err := sb.host.BackendOf(ctx, t)
		if err != nil {
			return err
		}
		if g, ok := b.(snapshot.Limiter); ok {
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
		l.Disk += mountHeadroom
	}
	if l.Inodes > 0 {
		l.Inodes += mountHeadroom >> 12
	}
	return sb.LimitForks(ctx, rec, l)
}

// maintainInterval is the time between two calls of [snapshot.Maintainer.Maintain], the backend's regular
// work for forks in use, while a sandbox runs.
const maintainInterval = 10 * time.Second

// StartMaintenance starts calling Maintain, a backend's regular work for forks in use, of the backends of a running
// sandbox's trees every ten seconds, until the caller calls stop. Backends that need no maintenance are left out.
func (sb *Store) StartMaintenance(rec *catalog.Record) (stop func()) {
	var tenders []snapshot.Maintainer
	for _, t := range rec.Trees {
		if b, err := sb.host.BackendOf(context.Background(), t); err == nil {
			if tender, ok := b.(snapshot.Maintainer); ok {
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
		every := time.NewTicker(maintainInterval)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			for _, t := range tenders {
				if err := t.Maintain(ctx); err != nil && ctx.Err() == nil {
					sb.notice("the disk limit of " + rec.Name + " is not up to date: " + err.Error())
					return
				}
			}
		}
	})
	return func() { cancel(); runs.Wait() }
}

// GaugeOf returns a function that measures how much of its disk limit a sandbox uses. known is false if no
// backend can measure it.
func (sb *Store) GaugeOf(rec *catalog.Record) func() (used snapshot.DiskLimit, known bool) {
	trees := slices.Clone(rec.Trees)
	return func() (snapshot.DiskLimit, bool) {
		for _, t := range trees { // several trees share one limit
			b, err := sb.host.BackendOf(context.Background(), t)
			if err != nil {
				continue
			}
			if g, ok := b.(snapshot.Limiter); ok {
				used, err := g.Gauge(context.Background(), t.Fork)
				return used, err == nil
			}
		}
		return snapshot.DiskLimit{}, false
	}
}

// FitsDisk returns ErrBusy if the disk limit of l is below the sandbox's present usage: no command could
// start under it, and most files could not even be removed.
func (sb *Store) FitsDisk(rec *catalog.Record, l catalog.Limits) error {
	if !hostfs.LimitsDisk(l) || hostfs.DiskLimit(l) == hostfs.DiskLimit(rec.Policy.Limits) {
		return nil
	}
	used, known := sb.GaugeOf(rec)()
	refuse := func(limit, text, least string) error {
		return &errs.Error{
			Op: "limiting " + limit, Path: rec.Name, Kind: errs.ErrBusy, Err: errors.New(text + " in use"),
			Hints: []string{"snapfs limits " + rec.Name + " --set " + limit + "=" + least},
		}
	}
	switch {
	case known && l.Disk > 0 && int64(used.Bytes) > l.Disk:
		return refuse("disk", units.SizeText(int64(used.Bytes))+" are", units.FormatSize((int64(used.Bytes)+mountHeadroom-1)/mountHeadroom*mountHeadroom))
	case known && l.Inodes > 0 && used.Inodes > l.Inodes:
		return refuse("inodes", units.FormatCount(used.Inodes)+" are", units.FormatCount(used.Inodes))
	}
	return nil
}

// limitFork sets the disk limit of a fork to that of l. All forks with the same sandbox, the sandbox's id, share one
// limit if the backend supports that. Host.Choose has already rejected combinations of backends that need a shared
// limit and cannot have one.
func limitFork(ctx context.Context, b snapshot.Backend, fork snapshot.ForkID, sandbox string, l catalog.Limits) error {
	d := hostfs.DiskLimit(l)
	limiter, ok := b.(snapshot.Limiter)
	if !ok && d == (snapshot.DiskLimit{}) {
		return nil
	}
	if !ok {
		return hostfs.ErrUnlimited()
	}
	if hostfs.LimitPlace(b) != "" && hostfs.LimitsDisk(l) {
		d.Share = sandbox
	}
	return limiter.LimitFork(ctx, fork, d)
}

// noneServed returns ErrNotSupported if a server process outside the sandbox does the I/O of one of its
// trees, because the sandbox's I/O limits do not apply to that process.
func (sb *Store) noneServed(ctx context.Context, rec *catalog.Record) error {
	for _, t := range rec.Trees {
		b, err := sb.host.BackendOf(ctx, t)
		if err != nil {
			return err
		}
		if b.Facts().Served {
			return &errs.Error{Op: "limiting", Component: t.Driver, Path: t.Path, Kind: errs.ErrNotSupported, Err: hostfs.ErrServed()}
		}
	}
	return nil
}
