//go:build linux

// Package overlayquota limits sandboxes on filesystems without quotas of their own. It is the backend of
// package overlay with the layers on a pool, a btrfs in a file. The tree stays where it is and is read from
// there; nothing is imported. It needs root and a pool, which it never creates by itself.
//
// Each upper layer of a fork is a subvolume of the pool, in a quota group (see package qgroup); the layers of
// all trees of a sandbox are in the same group. Records, and copies of layers that are sealed in use, are in
// the pool's directory for layers and count for no group.
//
// The kernel's overlayfs writes without CAP_SYS_RESOURCE, and passes on no ioctl that makes a subvolume. The
// scratch directory, a sandbox's /tmp, is mounted directly: a subvolume made there by BTRFS_IOC_SUBVOL_CREATE
// is in the group of the scratch directory and is deleted with it. The newer ioctl, which can refuse to join
// a group, is blocked by the system call filter. So no process in a sandbox can leave its group.
package overlayquota

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

// Driver is the driver of this backend. The engine chooses it by name, or for a disk limit that no other
// backend can enforce. The pools are beside the driver's own directory.
var Driver = snapshot.Driver{Name: name, Automatic: true, ForLimits: true, Open: open}

// A Backend is the backend of package overlay, with its layers on a pool (a btrfs in a file), whose quotas
// limit them.
type Backend struct {
	*overlay.Backend
	storage *poolStorage
}

var _ interface {
	snapshot.Backend
	snapshot.Limiter
	snapshot.TmpProvider
	snapshot.Maintainer
} = (*Backend)(nil)

func open(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
	p, err := choose(ctx, place.Dir)
	if err != nil {
		return nil, err
	}
	place.Dir = layersDir(p, place.Dir)
	g := &poolStorage{dir: place.Dir, pool: p}
	b, err := overlay.OpenOn(place, g)
	if err != nil {
		return nil, err
	}
	return &Backend{b, g}, nil
}

// layersDir returns the directory, in the pool p (a btrfs in a file), for the layers of forks whose state
// directory is dir.
func layersDir(p *pool.Pool, dir string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, dir) // it never fails
	return filepath.Join(p.Layers(), strconv.FormatUint(h.Sum64(), 16))
}

// choose opens the pool (a btrfs in a file) that the backend with the directory own uses: the one that has
// its layers, or else the default pool, or else the first. Errors are those of opening any pool.
func choose(ctx context.Context, own string) (*pool.Pool, error) {
	dir := filepath.Join(filepath.Dir(own), pool.Driver.Name)
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
		if _, err := os.Lstat(layersDir(p, own)); err == nil {
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
		return nil, refuse("no pool exists to store layers under a limit", hints...)
	}
	return first, nil
}

func refuse(why string, hints ...string) error {
	return &errs.Error{Op: "opening", Component: name, Kind: errs.ErrNotSupported, Err: errors.New(why), Hints: hints}
}

// Capture records a snapshot of the tree, for [snapshot.Backend], as package overlay does.
func (b *Backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	if err := b.Maintain(ctx); err != nil { // before the first write to the pool
		return snapshot.Snapshot{}, err
	}
	return b.Backend.Capture(ctx, tree, id)
}

// Fork makes the fork id of the snapshot from, for [snapshot.Backend]. Its upper layer is a subvolume of the
// pool.
func (b *Backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	if err := b.storage.pool.Growing(ctx, id); err != nil {
		return snapshot.Fork{}, err
	}
	return b.Backend.Fork(ctx, from, id)
}

// Maintain limits all forks on the pool together to the space that the host's disk has, for
// [snapshot.Maintainer].
func (b *Backend) Maintain(ctx context.Context) error { return b.storage.pool.Maintain(ctx) }

// LimitPlace returns a name of the pool's filesystem, on which forks can share a disk limit, for
// [snapshot.Limiter].
func (b *Backend) LimitPlace() string { return qgroup.Place(b.storage.pool.Mount()) }

// Gauge returns the bytes that count for the fork's disk limit now, for [snapshot.Limiter]: those charged to
// its quota group.
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

// failed wraps err in an [*errs.Error] with the operation op and the path. A nil err stays nil.
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
