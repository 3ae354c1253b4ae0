//go:build linux

package overlayquota

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/qgroup"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A poolStorage is a [store.QuotaStorage] that makes each overlay layer a subvolume of a pool, where btrfs
// quota groups limit it.
type poolStorage struct {
	dir  string
	pool *pool.Pool
}

var _ store.QuotaStorage = (*poolStorage)(nil)

// Make makes a subvolume of the pool at path, for the content of an upper layer. It implements
// [store.QuotaStorage].
func (g *poolStorage) Make(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := btrfs.Create(int(dir.Fd()), filepath.Base(path)); err != nil {
		return &os.PathError{Op: "make the subvolume", Path: path, Err: err}
	}
	return os.Chmod(path, 0o700)
}

// Destroy deletes the subvolume name in the directory dir, which held the content of a removed layer; false
// if name is not a subvolume.
func (g *poolStorage) Destroy(dir int, name string) (bool, error) {
	st, err := vfs.Lstat(dir, name)
	if err != nil || st.Ino != btrfs.RootInode {
		return false, nil //nolint:nilerr // the caller deletes other entries file by file, and reports the error
	}
	err = btrfs.Destroy(dir, name)
	return err != unix.ENOTEMPTY, err
}

// CanLimit returns the reason why forks cannot have the disk limit l, or nil. btrfs limits bytes, not inodes.
func (g *poolStorage) CanLimit(l snapshot.DiskLimit) error {
	if l.Inodes > 0 {
		return &errs.Error{
			Op: "limiting", Component: name, Path: g.dir, Kind: errs.ErrNotSupported, Err: errors.New("a pool does not count inodes"),
			Hints: []string{"snapfs run --backend overlay … (with SNAPFS_HOME on an ext4 or xfs with project quotas)"},
		}
	}
	return g.pool.CanLimit()
}

// Limit puts a fork's layer into the quota group of the fork, or of the forks that share the
// limit, and sets the group's limit.
func (g *poolStorage) Limit(ctx context.Context, layer string, l snapshot.DiskLimit) error {
	return failed("limiting", layer, g.limit(ctx, layer, l))
}

func (g *poolStorage) limit(ctx context.Context, layer string, l snapshot.DiskLimit) error {
	top, err := os.Open(g.dir)
	if err != nil {
		return err
	}
	defer top.Close()
	root, err := os.Open(layer)
	if err != nil {
		return err
	}
	defer root.Close()
	fd := int(top.Fd())
	scratch, err := g.openScratch(layer)
	if err != nil {
		return err
	}
	defer scratch.Close()
	if l == (snapshot.DiskLimit{}) {
		if err := fault.Point(ctx, "remove the limit"); err != nil {
			return err
		}
		if scratch != nil {
			err = qgroup.Release(ctx, fd, int(scratch.Fd()))
		}
		return errors.Join(err, qgroup.Release(ctx, fd, int(root.Fd())))
	}
	if err := g.CanLimit(l); err != nil {
		return err
	}
	if err := qgroup.Count(ctx, fd); err != nil {
		return err
	}
	info, err := btrfs.Info(int(root.Fd()))
	if err != nil {
		return err
	}
	group := qgroup.For(info.ID, l.Share)
	had, err := qgroup.Of(fd, info.ID)
	if err == nil && scratch != nil {
		err = qgroup.Join(ctx, fd, int(scratch.Fd()), group)
	}
	if err == nil {
		err = qgroup.Hold(ctx, fd, int(root.Fd()), group, int64(l.Bytes))
	}
	if err != nil && len(had) == 0 {
		err = errors.Join(err, qgroup.Release(context.WithoutCancel(ctx), fd, int(root.Fd())))
	}
	return err
}

// InheritLimit puts the layer next into the quota group of the layer old, so that one limit applies to both.
func (g *poolStorage) InheritLimit(old, next string) error {
	return failed("limiting", next, g.inheritGroup(context.Background(), old, next))
}

// Swept deletes the scratch directories (the /tmp of sandboxes) and quota groups of removed forks. The
// backend's sweep calls it at its end.
func (g *poolStorage) Swept() error {
	top, err := os.Open(g.dir)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := g.sweepScratch(); err != nil {
		return failed("sweeping", g.dir, err)
	}
	return failed("sweeping", g.dir, qgroup.Sweep(int(top.Fd())))
}
