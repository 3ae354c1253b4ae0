//go:build linux

package btrfs

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/qgroup"
	"golang.org/x/sys/unix"
)

// LimitPlace keeps the contract of [snapshot.Sharer]: the filesystem counts.
func (b *Backend) LimitPlace() string { return qgroup.Place(b.top) }

// Own says that the filesystem is snapfs's own: [Backend.LimitFork] turns simple
// quotas on where they are off, which on another's filesystem is for its owner to
// decide, because kernels before Linux 6.7 refuse to mount it from then on.
func (b *Backend) Own() { b.own = true }

// CanLimit keeps the contract of [snapshot.LimitProber]: root can limit bytes, with
// simple quotas.
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
		return &problem{kind: errs.ErrNotSupported, path: b.top, why: why, hints: hints}
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
		return no("only root may set a limit on btrfs", "sudo snapfs …")
	case mode == btrfs.QuotaFull:
		return no("full quota groups are on, and with them the removal of a snapshot can block the filesystem for minutes",
			"btrfs quota disable "+b.top+" && btrfs quota enable --simple "+b.top)
	case mode == btrfs.QuotaSimple:
		return nil
	case !btrfs.SimpleQuota():
		return no("this kernel has no simple quotas, which came with Linux 6.7", other)
	case !b.own:
		return no("the filesystem counts nothing: simple quotas are off",
			"btrfs quota enable --simple "+b.top+" (kernels before Linux 6.7 will not mount it afterwards)",
			"snapfs pool create && snapfs pool import "+b.tree)
	}
	return nil
}

// LimitFork keeps the contract of [snapshot.Limiter]. Writes beyond the limit fail
// with EDQUOT, not ENOSPC. What is deleted, or overwritten, counts until the next
// commit, which a write that lacks the space brings about; an extent of which a part
// was overwritten counts as a whole. In a full fork a file can be removed, but not
// cut short: the filesystem wants space for that.
func (b *Backend) LimitFork(ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
	return b.fail("limiting", string(fork), b.limitFork(ctx, string(fork), l))
}

func (b *Backend) limitFork(ctx context.Context, fork string, l snapshot.DiskLimit) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := b.enter()
	if err != nil {
		return absent(err)
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
		return absent(err)
	}
	defer unix.Close(root)
	if l.Bytes <= 0 {
		if err := fault.Point(ctx, "take the limit away"); err != nil {
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

// Gauge keeps the contract of [snapshot.Gauge].
func (b *Backend) Gauge(_ context.Context, fork snapshot.ForkID) (snapshot.DiskLimit, error) {
	n, err := b.gauge(string(fork))
	return snapshot.DiskLimit{Bytes: snapshot.Bytes(n)}, b.fail("measuring", string(fork), err)
}

func (b *Backend) gauge(fork string) (int64, error) {
	r, err := b.enter()
	if err != nil {
		return 0, absent(err)
	}
	defer r.close()
	_, info, err := r.load(forks, fork)
	if err != nil {
		return 0, err
	}
	groups, err := qgroup.Of(r.fd, info.ID)
	if err == nil && len(groups) == 0 {
		err = &problem{kind: errs.ErrNotSupported, path: b.top, why: "it has no limit"}
	}
	if err != nil {
		return 0, err
	}
	return qgroup.Used(r.fd, groups[0])
}

// unlimit takes away what holds the subvolume whose root is open to a limit of its own.
func (r room) unlimit(root int) error {
	info, err := btrfs.Info(root)
	if err != nil {
		return &os.PathError{Op: "ask for the subvolume", Err: err}
	}
	return qgroup.Dissolve(r.fd, qgroup.Own(info.ID))
}
