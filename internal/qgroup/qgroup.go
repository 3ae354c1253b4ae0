//go:build linux

// Package qgroup limits the bytes of btrfs subvolumes, one or several together, by simple quotas.
//
// A fork with a limit is in a quota group of a level that no other program uses. That is either a group of
// its own, with the id of its subvolume, which btrfs never reuses, or a group that all forks with the same
// limit share. The subvolumes of the fork are members; a subvolume made in them later becomes a member by
// itself. The filesystem stores groups and limits, so nothing else needs to be stored. Data that a member
// wrote stays charged to its group as long as a snapshot shares it.
//
// A process that makes a subvolume can ask, with BTRFS_SUBVOL_QGROUP_INHERIT, that the subvolume joins no
// group. Only a sandbox that refuses that ioctl prevents this.
//
// All functions need root, and a descriptor of any directory on the filesystem. That directory should have no
// limit itself: a full subvolume has no space even for the record of its new limit.
package qgroup

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Level is the level of the btrfs quota groups that snapfs makes to limit subvolumes. No other program uses
// it.
const Level = 0x5fa

// All is the id of the quota group of all subvolumes of snapfs on a filesystem, one level above the limited
// groups. Its own limit leaves the host a reserve of free disk space.
const All = (Level+1)<<48 | 1

// shared is the bit in the number of a quota group that several subvolumes share. Groups of one subvolume
// have its id, which counts up from 256 and never reaches this bit.
const shared = 1 << 47

// Own returns the id of the btrfs quota group that limits one subvolume alone, the one with this id.
func Own(id uint64) uint64 { return btrfs.Group(Level, id) }

// Shared returns the id of the quota group for all subvolumes that share the limit called name. The id is a
// hash of the name, so that nothing need be stored.
func Shared(name string) uint64 {
	h := fnv.New64a()              // it never fails
	_, _ = io.WriteString(h, name) // it never fails
	return btrfs.Group(Level, shared|h.Sum64()>>17)
}

// For returns the id of the quota group that limits the subvolume id: the group for all subvolumes that share
// the limit called share, or the subvolume's own if share is "".
func For(id uint64, share string) uint64 {
	if share != "" {
		return Shared(share)
	}
	return Own(id)
}

// Place returns a text that identifies the btrfs filesystem that holds path; "" if it cannot be read. Quota
// groups with one id on two filesystems are different groups.
func Place(path string) string {
	dir, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer dir.Close()
	id, err := btrfs.FilesystemUUID(int(dir.Fd()))
	if err != nil {
		return ""
	}
	return "btrfs " + id.String()
}

// Count turns simple quotas on for the btrfs filesystem of fd, so that usage is counted, unless quotas of any
// mode are on.
func Count(ctx context.Context, fd int) error {
	mode, err := btrfs.QuotaModeOf(fd)
	if err != nil || mode != btrfs.QuotaOff {
		return err
	}
	if err := fault.Point(ctx, "turn simple quotas on"); err != nil {
		return err
	}
	return named("turn simple quotas on", btrfs.SetQuota(fd, btrfs.QuotaSimple))
}

// Hold limits a subvolume of the btrfs filesystem of fd to n bytes, together with those nested in it. root is
// the subvolume's open root directory. Hold puts the subvolumes into the quota group, which it makes if it
// does not exist, limits the group, and removes them from other groups of [Level], those that snapfs makes. A
// repeated call adds nested subvolumes that have escaped. After an error the old limit holds; a new, empty
// group may remain until [Sweep].
func Hold(ctx context.Context, fd, root int, group uint64, n int64) error {
	if err := Join(ctx, fd, root, group); err != nil {
		return err
	}
	if err := fault.Point(ctx, "limit the group"); err != nil {
		return err
	}
	return named("limit", btrfs.Limit(fd, group, n))
}

// Join puts the subvolume whose root directory is open as root, and those nested in it, into a quota group of
// the filesystem of fd, as [Hold] does, and sets no limit.
func Join(ctx context.Context, fd, root int, group uint64) error {
	for tries := 0; ; tries++ {
		if err := fault.Point(ctx, "make a quota group"); err != nil {
			return err
		}
		if err := btrfs.AddGroup(fd, group); err != nil {
			return named("make a group", err)
		}
		err := enroll(ctx, fd, root, group)
		if (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)) && tries < 3 { // a concurrent sweep removed the empty group
			continue
		}
		return err
	}
}

// enroll makes the subvolume whose root directory is open as root, and those nested in it, members of a quota
// group of the filesystem of fd. A subvolume that another process creates in a member meanwhile is a member
// from the start.
func enroll(ctx context.Context, fd, root int, group uint64) error {
	if err := fault.Point(ctx, "put the subvolume into the group"); err != nil {
		return err
	}
	return each(ctx, root, func(id uint64) error {
		others, err := Of(fd, id)
		if err != nil {
			return err
		}
		for _, other := range others {
			if other != group {
				if err := leave(fd, id, other); err != nil {
					return err
				}
			}
		}
		return named("join a group", btrfs.JoinGroup(fd, id, group))
	})
}

// Gather makes the subvolume whose root directory is open as root, and those nested in it, members of one
// more quota group of the filesystem of fd, such as [All]. They stay in the groups that limit them. It makes
// the group if it does not exist. Cost if they are members already: one search.
func Gather(ctx context.Context, fd, root int, group uint64) error {
	info, err := btrfs.Info(root)
	if err != nil {
		return named("read the subvolume's information", err)
	}
	in, err := btrfs.Members(fd, info.ID)
	if err != nil || slices.Contains(in, group) {
		return named("list the groups", err)
	}
	if err := btrfs.AddGroup(fd, group); err != nil {
		return named("make a group", err)
	}
	nested := func(id uint64) error {
		if id == info.ID {
			return nil
		}
		return named("join a group", btrfs.JoinGroup(fd, id, group))
	}
	if err := each(ctx, root, nested); err != nil {
		return err
	}
	return named("join a group", btrfs.JoinGroup(fd, info.ID, group)) // last, because its membership marks the work as done
}

// each calls do with the id of the subvolume whose root directory is open as root, and with those of all
// subvolumes nested in it.
func each(ctx context.Context, root int, do func(id uint64) error) error {
	info, err := btrfs.Info(root)
	if err != nil {
		return named("read the subvolume's information", err)
	}
	if err := do(info.ID); err != nil {
		return err
	}
	nested, err := btrfs.Nested(root)
	if err != nil {
		return named("list the subvolumes", err)
	}
	for _, path := range nested {
		if err := ctx.Err(); err != nil {
			return err
		}
		dir, err := vfs.OpenBeneath(root, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		err = each(ctx, int(dir.Fd()), do)
		dir.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Of returns the ids of the quota groups that limit the subvolume id of the filesystem of fd: those of
// [Level] of which it is a member.
func Of(fd int, id uint64) ([]uint64, error) {
	all, err := btrfs.Members(fd, id) // btrfs stores a relation on both sides
	if err != nil {
		return nil, named("list the groups", err)
	}
	var found []uint64
	for _, group := range all {
		if group>>48 == Level {
			found = append(found, group)
		}
	}
	return found, nil
}

// Release removes the subvolume whose root directory is open as root, and those nested in it, from the quota
// groups of the filesystem of fd that limit them. It deletes groups that are then empty.
func Release(ctx context.Context, fd, root int) error {
	return quiet(each(ctx, root, func(id uint64) error {
		groups, err := Of(fd, id)
		for _, group := range groups {
			if err == nil {
				err = leave(fd, id, group)
			}
		}
		return err
	}))
}

func leave(fd int, id, group uint64) error {
	err := btrfs.LeaveGroup(fd, id, group)
	if err == nil {
		err = btrfs.DropGroup(fd, group)
	}
	if err == unix.EBUSY || err == unix.ENOENT {
		return nil // it has other members, or was deleted meanwhile
	}
	return named("leave a group", err)
}

// Dissolve deletes a quota group of the filesystem of fd and its memberships; a missing group is no error.
// Its members may be subvolumes that are about to be destroyed, or destroyed ones whose data snapshots still
// share.
func Dissolve(fd int, group uint64) error {
	err := btrfs.DropGroup(fd, group)
	for range 3 { // a subvolume may join meanwhile
		if err != unix.EBUSY {
			break
		}
		var members []uint64
		if members, err = btrfs.Members(fd, group); err != nil {
			break
		}
		for _, m := range members {
			if m>>48 >= Level {
				continue // not a member, but a group that this one is in
			}
			if err := btrfs.LeaveGroup(fd, m, group); err != nil {
				return named("leave a group", err)
			}
		}
		err = btrfs.DropGroup(fd, group)
	}
	return quiet(named("drop a group", err))
}

// Sweep deletes the quota groups of snapfs on the filesystem of fd that limit no existing subvolume. Cost:
// some microseconds for each group.
func Sweep(fd int) error {
	groups, err := btrfs.Groups(fd, Level)
	if err != nil {
		return quiet(named("list the groups", err))
	}
	for _, group := range groups {
		members, err := btrfs.Members(fd, group)
		if err != nil {
			return quiet(named("list a group", err))
		}
		alive := false
		for _, m := range members {
			alive = alive || btrfs.IsThere(fd, m)
		}
		if !alive {
			if err := forget(fd, group, members); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget deletes a quota group, on the filesystem of fd, whose members, subvolumes, no longer exist. If an
// existing subvolume has joined since, the group stays. That can happen because no lock separates [Sweep]
// from a new limit.
func forget(fd int, group uint64, members []uint64) error {
	for _, m := range members {
		if m>>48 >= Level {
			continue // not a member, but a group that this one is in
		}
		if err := quiet(btrfs.LeaveGroup(fd, m, group)); err != nil {
			return named("leave a group", err)
		}
	}
	err := btrfs.DropGroup(fd, group)
	if err == unix.EBUSY {
		return nil
	}
	return quiet(named("drop a group", err))
}

// Used returns the bytes charged to a quota group of the filesystem of fd, including reservations not yet on
// disk, which the kernel compares with the limit. fs.ErrNotExist: no such group.
func Used(fd int, group uint64) (int64, error) {
	id, err := btrfs.FilesystemUUID(fd)
	if err != nil {
		return 0, err
	}
	dir := fmt.Sprintf("/sys/fs/btrfs/%s/qgroups/%d_%d/", id, group>>48, group&(1<<48-1))
	var sum int64
	for _, file := range []string{"referenced", "rsv_data", "rsv_meta_pertrans", "rsv_meta_prealloc"} {
		text, err := os.ReadFile(dir + file)
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, named("read "+dir+file, err)
		}
		sum += n
	}
	return sum, nil
}

// quiet returns nil if err, of a quota ioctl, means that there is no limit to change: quotas are off, there
// is no such group, or this process may not set limits. It returns any other err unchanged.
func quiet(err error) error {
	for _, none := range []error{unix.ENOENT, unix.ENOTCONN, unix.EINVAL, unix.EPERM, unix.ENOTTY} {
		if errors.Is(err, none) {
			return nil
		}
	}
	return err
}

func named(op string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Err: err}
}
