package btrfs

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/kernel"
)

// A fork with a limit has a quota group of its own, of a level that nobody else
// uses, with the id of its subvolume, which is never given twice. In it are the
// fork and the subvolumes nested in it; those that are made in it later join by
// themselves. The filesystem keeps the group and its limit, so that nothing need
// be written down here. What the fork wrote stays charged to it where a sealed
// snapshot shares it.
//
// A process that makes a subvolume may ask, with BTRFS_SUBVOL_QGROUP_INHERIT, that
// it joins no group; only refusing it those calls keeps it from that. LimitFork,
// called again, brings such subvolumes in.
const groupLevel = 0x5fa

// groupOf is the group of the subvolume with this id.
func groupOf(id uint64) uint64 { return kernel.BtrfsGroup(groupLevel, id) }

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
		return &problem{kind: snapshot.ErrNotSupported, path: b.top, why: why, hints: hints}
	}
	mode, err := kernel.BtrfsQuotaMode(fd)
	if err != nil {
		return err
	}
	const other = "snapfs run --backend overlay … (on an ext4 or xfs with project quotas)"
	switch {
	case l.Inodes > 0:
		return no("btrfs does not count the inodes of a subvolume", other)
	case kernel.BtrfsMayLimit(fd) != nil:
		return no("only root may set a limit on btrfs", "sudo snapfs …")
	case mode == kernel.QuotaFull:
		return no("full quota groups are on, and with them the removal of a snapshot can block the filesystem for minutes",
			"btrfs quota disable "+b.top+" && btrfs quota enable --simple "+b.top)
	case mode == kernel.QuotaSimple:
		return nil
	case !kernel.BtrfsSimpleQuota():
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
		return r.dissolve(info.ID)
	}
	if err := r.count(ctx); err != nil {
		return err
	}
	_, err = kernel.BtrfsUsage(r.fd, groupOf(info.ID))
	had := err == nil
	err = r.relimit(ctx, root, info.ID, l.Bytes)
	if err != nil && !had {
		err = errors.Join(err, r.dissolve(info.ID))
	}
	return err
}

// count turns simple quotas on, where that has not been done.
func (r room) count(ctx context.Context) error {
	mode, err := kernel.BtrfsQuotaMode(r.fd)
	if err != nil || mode != kernel.QuotaOff {
		return err
	}
	if err := fault.Point(ctx, "turn simple quotas on"); err != nil {
		return err
	}
	return quotaError("turn simple quotas on", kernel.BtrfsSetQuota(r.fd, kernel.QuotaSimple))
}

// relimit limits the group of the subvolume whose root is open, makes it where
// there is none, and then puts into it what belongs in it and is not there. All
// this is asked of the room: the subvolume, when it is full, is refused even the
// space to write down its new limit.
func (r room) relimit(ctx context.Context, root int, id uint64, n snapshot.Bytes) error {
	group := groupOf(id)
	if err := fault.Point(ctx, "make a quota group"); err != nil {
		return err
	}
	if err := kernel.BtrfsAddGroup(r.fd, group); err != nil {
		return quotaError("make a group", err)
	}
	if err := r.enroll(ctx, root, id, group); err != nil {
		return err
	}
	if err := fault.Point(ctx, "limit the group"); err != nil {
		return err
	}
	return quotaError("limit", kernel.BtrfsLimit(r.fd, group, int64(n)))
}

// enroll puts a subvolume and those nested in it into a group: those that are made
// meanwhile in what is in it already are in it from the start.
func (r room) enroll(ctx context.Context, root int, id, group uint64) error {
	if err := fault.Point(ctx, "put the subvolume into the group"); err != nil {
		return err
	}
	if err := kernel.BtrfsJoinGroup(r.fd, id, group); err != nil {
		return quotaError("join a group", err)
	}
	nested, err := kernel.BtrfsNested(root)
	if err != nil {
		return &os.PathError{Op: "list the subvolumes", Err: err}
	}
	for _, path := range nested {
		if err := ctx.Err(); err != nil {
			return err
		}
		fd, err := beneath(root, path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just gone
		}
		if err != nil {
			return err
		}
		info, err := kernel.BtrfsInfo(fd)
		if err == nil {
			err = r.enroll(ctx, fd, info.ID, group)
		}
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// unlimit takes away what holds the subvolume whose root is open to a limit.
func (r room) unlimit(root int) error {
	info, err := kernel.BtrfsInfo(root)
	if err != nil {
		return &os.PathError{Op: "ask for the subvolume", Err: err}
	}
	return r.dissolve(info.ID)
}

// dissolve takes the group of a subvolume away, if it has one. The subvolume may be
// about to be destroyed, with some that are charged for what snapshots share.
func (r room) dissolve(id uint64) error {
	group := groupOf(id)
	err := kernel.BtrfsDropGroup(r.fd, group)
	for range 3 { // a subvolume may just have joined
		if err != unix.EBUSY {
			break
		}
		var members []uint64
		if members, err = kernel.BtrfsMembers(r.fd, group); err != nil {
			break
		}
		for _, m := range members {
			if err := kernel.BtrfsLeaveGroup(r.fd, m, group); err != nil {
				return quotaError("leave a group", err)
			}
		}
		err = kernel.BtrfsDropGroup(r.fd, group)
	}
	for _, none := range []error{unix.ENOENT, unix.ENOTCONN, unix.EINVAL, unix.EPERM, unix.ENOTTY} {
		if errors.Is(err, none) {
			return nil // no quotas, or no right to have set one
		}
	}
	return quotaError("drop a group", err)
}

func quotaError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Err: err}
}
