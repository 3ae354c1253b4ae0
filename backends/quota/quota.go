//go:build linux

// Package quota holds to a limit what sandboxes add to trees that lie on a
// filesystem without quotas of its own: the kernel's overlay, as package overlay
// keeps it, with its layers on a pool. The tree stays where it is and is read from
// there; nothing is imported. It takes root and a pool, which is never made unasked.
//
// Each layer that a fork writes to lies in a subvolume of the pool, in a quota group
// (see package qgroup); the layers of all trees of a sandbox are in the same one. The
// rest, the records and what is copied when a fork is sealed in use, lies in the pool's
// directory for layers and counts for nobody.
//
// The kernel's overlay writes without CAP_SYS_RESOURCE, and hands no ioctl on by which
// a subvolume is made. The scratch, which is mounted as it is, does: a subvolume that is
// made there by BTRFS_IOC_SUBVOL_CREATE is in the group of the scratch and goes with it.
// The newer call, which can ask for no group, is refused by the filter of system calls.
// So what runs in a sandbox has no way out of its group.
package quota

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/qgroup"
)

const name = "overlay-quota"

// Driver opens this backend, for who asks for it or for a limit that no other can
// hold. The pools lie beside the directory that is given it as its own.
func Driver() snapshot.Driver {
	return snapshot.Driver{Name: name, Automatic: true, ForLimits: true, Open: open}
}

// A Backend is overlay's, with its layers on a pool.
type Backend struct {
	*overlay.Backend
	ground *ground
}

var _ interface {
	snapshot.Backend
	snapshot.Limiter
	snapshot.LimitProber
	snapshot.Sharer
	snapshot.Gauge
	snapshot.Scratcher
	snapshot.Tender
} = (*Backend)(nil)

func open(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
	p, err := choose(ctx, place.Dir)
	if err != nil {
		return nil, err
	}
	place.Dir = store(p, place.Dir)
	g := &ground{dir: place.Dir, pool: p}
	b, err := overlay.OpenOn(place, g)
	if err != nil {
		return nil, err
	}
	return &Backend{b, g}, nil
}

// store is the part that one state directory has of a pool's layers.
func store(p *pool.Pool, dir string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, dir) // it never fails
	return filepath.Join(p.Layers(), strconv.FormatUint(h.Sum64(), 16))
}

// choose answers with the pool that has layers of the state directory, else with the one
// that is used when none is named, else with the first.
func choose(ctx context.Context, own string) (*pool.Pool, error) {
	dir := filepath.Join(filepath.Dir(own), pool.Driver().Name)
	names, err := pool.List(dir)
	if err != nil {
		return nil, err
	}
	if i := slices.Index(names, pool.Main); i > 0 {
		names[0], names[i] = names[i], names[0]
	}
	var first *pool.Pool
	for _, n := range names {
		p, err := pool.Open(ctx, dir, n)
		if err != nil {
			return nil, err
		}
		if _, err := os.Lstat(store(p, own)); err == nil {
			return p, nil
		}
		if first == nil {
			first = p
		}
	}
	if first == nil {
		hints := []string{"snapfs pool create"}
		if os.Geteuid() != 0 {
			hints = []string{"sudo snapfs pool create && sudo snapfs …"}
		}
		return nil, refuse("there is no pool to keep what is added, by which it could be held", hints...)
	}
	return first, nil
}

func refuse(why string, hints ...string) error {
	return &errs.Error{Op: "opening", Component: name, Kind: errs.ErrNotSupported, Err: errors.New(why), Hints: hints}
}

// Capture keeps the contract of [snapshot.Backend].
func (b *Backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	if err := b.Tend(ctx); err != nil { // the first that is made in the pool
		return snapshot.Snapshot{}, err
	}
	return b.Backend.Capture(ctx, tree, id)
}

// Fork keeps the contract of [snapshot.Backend].
func (b *Backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	if err := b.ground.pool.Growing(ctx, id); err != nil {
		return snapshot.Fork{}, err
	}
	return b.Backend.Fork(ctx, from, id)
}

// Tend keeps the contract of [snapshot.Tender].
func (b *Backend) Tend(ctx context.Context) error { return b.ground.pool.Tend(ctx) }

// LimitPlace keeps the contract of [snapshot.Sharer].
func (b *Backend) LimitPlace() string { return qgroup.Place(b.ground.pool.Mount()) }

// Gauge keeps the contract of [snapshot.Gauge].
func (b *Backend) Gauge(_ context.Context, fork snapshot.ForkID) (snapshot.DiskLimit, error) {
	layer, err := b.LayerOf(fork)
	if err != nil {
		return snapshot.DiskLimit{}, err
	}
	n, err := gauge(layer)
	if errors.Is(err, os.ErrNotExist) {
		err = refuse("the fork has no limit")
	}
	return snapshot.DiskLimit{Bytes: snapshot.Bytes(n)}, failed("measuring", layer, err)
}

func gauge(layer string) (int64, error) {
	dir, err := os.Open(layer)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	info, err := btrfs.Info(int(dir.Fd()))
	if err != nil {
		return 0, err
	}
	groups, err := qgroup.Of(int(dir.Fd()), info.ID)
	if err == nil && len(groups) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	return qgroup.Used(int(dir.Fd()), groups[0])
}

// failed makes err the contract's error.
func failed(op, path string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	e := &errs.Error{Op: op, Component: name, Path: path, Kind: errs.KindOf(err), Err: err}
	switch {
	case e.Kind == nil:
		e.Kind = errs.ErrCorrupt
	case errors.Is(e.Kind, errs.ErrNoSpace):
		e.Hints = []string{"snapfs gc", "snapfs pool grow SIZE"}
	}
	return e
}
