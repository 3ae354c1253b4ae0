//go:build linux

package btrfs

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/qgroup"
)

// LimitPlace returns a name of the btrfs filesystem, for [snapshot.Limiter]: forks on one filesystem can
// share a disk limit.
func (b *Backend) LimitPlace() string { return qgroup.Place(b.top) }

// Own declares that the filesystem belongs to snapfs alone, so that [Backend.LimitFork] may turn btrfs's
// simple quotas on. Elsewhere that is the owner's decision, because kernels before Linux 6.7 refuse to mount
// the filesystem afterwards.
func (b *Backend) Own() { b.own = true }

// CanLimit returns the reason why forks cannot have the disk limit l, or nil, for [snapshot.Limiter]: only
// root can limit bytes, by btrfs's simple quotas.
func (b *Backend) CanLimit(_ context.Context, l snapshot.DiskLimit) error {
	if l == (snapshot.DiskLimit{}) {
		return nil
	}
	top, err := os.Open(b.top)
	if err != nil {
		return b.fail("limiting", "", err)
	}
	defer top.Close()
	return b.fail("limiting", "", b.canLimit(int(top.Fd()), l))
}

func (b *Backend) canLimit(fd int, l snapshot.DiskLimit) error {
	no := func(why string, hints ...string) error {
		return &errs.Error{Kind: errs.ErrNotSupported, Path: b.top, Err: errors.New(why), Hints: hints}
	}
	mode, err := btrfs.QuotaModeOf(fd)
	if err != nil {
		return err
	}
	const other = "snapfs run --backend overlay … (on an ext4 or xfs with project quotas)"
	switch {
	case l.Inodes > 0:
		return no("btrfs does not count the inodes of a subvolume", other)
	case btrfs.MayLimit(fd) != nil:
		return no("only root can set a limit on btrfs", "sudo snapfs …")
	case mode == btrfs.QuotaFull:
		return no("full quota groups are on; with them the removal of a snapshot can block the filesystem for minutes",
			"btrfs quota disable "+errs.Quoted(b.top)+" && btrfs quota enable --simple "+errs.Quoted(b.top))
	case mode == btrfs.QuotaSimple:
		return nil
	case !btrfs.SimpleQuota():
		return no("this kernel has no simple quotas, which need Linux 6.7", other)
	case !b.own:
		return no("simple quotas are off on this filesystem",
			"btrfs quota enable --simple "+errs.Quoted(b.top)+" (kernels before Linux 6.7 will not mount it afterwards)",
			"snapfs pool create && snapfs pool import "+errs.Quoted(b.tree))
	}
	return nil
}

// LimitFork sets the disk limit of a fork, for [snapshot.Limiter]. Writes past the limit fail with EDQUOT,
// not ENOSPC. Deleted and overwritten data counts until the next commit; a write that lacks space starts one.
// A partly overwritten extent counts as a whole. In a full fork a file can be removed, but not truncated,
// because that needs space.
func (b *Backend) LimitFork(ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
	return b.fail("limiting", string(fork), b.limitFork(ctx, string(fork), l))
}

func (b *Backend) limitFork(ctx context.Context, fork string, l snapshot.DiskLimit) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := b.enter()
	if err != nil {
		return notFoundIfMissing(err)
	}
	defer r.close()
	_, info, err := r.load(forks, fork)
	if err != nil {
		return err
	}
	if l != (snapshot.DiskLimit{}) {
		if err := b.canLimit(r.fd, l); err != nil {
			return err
		}
	}
	root, err := r.open(forks + "/" + fork + "/" + treeName)
	if err != nil {
		return notFoundIfMissing(err)
	}
	defer unix.Close(root)
	if l.Bytes <= 0 {
		if err := fault.Point(ctx, "remove the limit"); err != nil {
			return err
		}
		return qgroup.Release(ctx, r.fd, root)
	}
	if err := qgroup.Count(ctx, r.fd); err != nil {
		return err
	}
	had, err := qgroup.Of(r.fd, info.ID)
	if err == nil {
		err = qgroup.Hold(ctx, r.fd, root, qgroup.For(info.ID, l.Share), int64(l.Bytes))
	}
	if err != nil && len(had) == 0 {
		err = errors.Join(err, qgroup.Release(context.WithoutCancel(ctx), r.fd, root))
	}
	return err
}

// Gauge returns the bytes that count for the fork's disk limit now, for [snapshot.Limiter]: those charged to
// its quota group.
func (b *Backend) Gauge(_ context.Context, fork snapshot.ForkID) (snapshot.DiskLimit, error) {
	n, err := b.gauge(string(fork))
	return snapshot.DiskLimit{Bytes: snapshot.Bytes(n)}, b.fail("measuring", string(fork), err)
}

func (b *Backend) gauge(fork string) (int64, error) {
	r, err := b.enter()
	if err != nil {
		return 0, notFoundIfMissing(err)
	}
	defer r.close()
	_, info, err := r.load(forks, fork)
	if err != nil {
		return 0, err
	}
	groups, err := qgroup.Of(r.fd, info.ID)
	if err == nil && len(groups) == 0 {
		err = &errs.Error{Kind: errs.ErrNotSupported, Path: b.top, Err: errors.New("the fork has no limit")}
	}
	if err != nil {
		return 0, err
	}
	return qgroup.Used(r.fd, groups[0])
}

// unlimit removes, before a subvolume is deleted, the quota group in which only that subvolume counts. root
// is a descriptor of the subvolume's root.
func (r dataDir) unlimit(root int) error {
	info, err := btrfs.Info(root)
	if err != nil {
		return &os.PathError{Op: "read the subvolume's information", Err: err}
	}
	return qgroup.Dissolve(r.fd, qgroup.Own(info.ID))
}
