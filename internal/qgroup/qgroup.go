//go:build linux

// Package qgroup holds btrfs subvolumes to a number of bytes, alone or several
// together, with simple quotas.
//
// A fork with a limit is in a quota group of a level that nobody else uses: one of
// its own, with the id of its subvolume, which is never given twice; or one that is
// named for all who share the limit. In it are the subvolumes of the fork, and those
// that are made in them later join by themselves. The filesystem keeps groups and
// limits, so that nothing need be written down elsewhere. What a member wrote stays
// charged to its group where a snapshot shares it.
//
// A process that makes a subvolume may ask, with BTRFS_SUBVOL_QGROUP_INHERIT, that
// it joins no group; only refusing it those calls keeps it from that.
//
// Everything here takes root, and a descriptor of any directory on the filesystem. It
// is asked of a place that is not limited itself: a full subvolume is refused even
// the space to write down its new limit.
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

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Level is that of the groups with limits.
const Level = 0x5fa

// All is the group for all that snapfs holds on a filesystem of its own, of the level
// above.
const All = (Level+1)<<48 | 1

// shared tells the groups that are named from those of one subvolume, whose ids are
// counted up from 256.
const shared = 1 << 47

// Own is the group of the subvolume with this id alone.
func Own(id uint64) uint64 { return btrfs.Group(Level, id) }

// Shared is the group of all who share the limit of this name.
func Shared(name string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name) // it never fails
	return btrfs.Group(Level, shared|h.Sum64()>>17)
}

// For is the group of the subvolume with this id: that of all who share the limit of
// the name, or its own where the name is "".
func For(id uint64, share string) uint64 {
	if share != "" {
		return Shared(share)
	}
	return Own(id)
}

// Place names the filesystem that holds path, which counts; "" where it cannot be told.
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

// Count turns simple quotas on, where nothing is counted yet.
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

// Hold puts the subvolume whose root is open, with those nested in it, into a group
// and no other of this level, and limits that to n bytes. The group is made where
// there is none. Repeating it brings in what has escaped. After an error the limit is
// what it was; a group that is new may stay, without one, until [Sweep].
func Hold(ctx context.Context, fd, root int, group uint64, n int64) error {
	if err := Join(ctx, fd, root, group); err != nil {
		return err
	}
	if err := fault.Point(ctx, "limit the group"); err != nil {
		return err
	}
	return named("limit", btrfs.Limit(fd, group, n))
}

// Join is Hold without a limit.
func Join(ctx context.Context, fd, root int, group uint64) error {
	for tries := 0; ; tries++ {
		if err := fault.Point(ctx, "make a quota group"); err != nil {
			return err
		}
		if err := btrfs.AddGroup(fd, group); err != nil {
			return named("make a group", err)
		}
		err := enroll(ctx, fd, root, group)
		if (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)) && tries < 3 {
			continue // a sweep found it empty
		}
		return err
	}
}

// enroll takes a subvolume and those nested in it: those that are made meanwhile in
// what is in the group already are in it from the start.
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

// Gather puts the subvolume whose root is open, with those nested in it, into a group
// that they are in beside those with limits of their own. The group is made where
// there is none. Cost, when it has been done: a search.
func Gather(ctx context.Context, fd, root int, group uint64) error {
	info, err := btrfs.Info(root)
	if err != nil {
		return named("ask for the subvolume", err)
	}
	in, err := btrfs.Members(fd, info.ID)
	if err != nil || slices.Contains(in, group) {
		return named("ask for the groups", err)
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
	return named("join a group", btrfs.JoinGroup(fd, info.ID, group)) // last: it says that all is done
}

// each calls do with the subvolume whose root is open, and with those nested in it.
func each(ctx context.Context, root int, do func(id uint64) error) error {
	info, err := btrfs.Info(root)
	if err != nil {
		return named("ask for the subvolume", err)
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
			continue // it has just gone
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

// Of lists the groups of this level that a subvolume is in.
func Of(fd int, id uint64) ([]uint64, error) {
	all, err := btrfs.Members(fd, id) // a relation is written down on both sides
	if err != nil {
		return nil, named("ask for the groups", err)
	}
	var found []uint64
	for _, group := range all {
		if group>>48 == Level {
			found = append(found, group)
		}
	}
	return found, nil
}

// Release takes the subvolume whose root is open, with those nested in it, out of
// its groups, which go when nothing is left in them.
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
		return nil // it has other members, or has just gone
	}
	return named("leave a group", err)
}

// Dissolve takes a group away, if it is there, whoever is in it. A member may be about
// to be destroyed, with some that are charged for what snapshots share.
func Dissolve(fd int, group uint64) error {
	err := btrfs.DropGroup(fd, group)
	for range 3 { // a subvolume may just have joined
		if err != unix.EBUSY {
			break
		}
		var members []uint64
		if members, err = btrfs.Members(fd, group); err != nil {
			break
		}
		for _, m := range members {
			if m>>48 >= Level {
				continue // not a member: a group that this one is in
			}
			if err := btrfs.LeaveGroup(fd, m, group); err != nil {
				return named("leave a group", err)
			}
		}
		err = btrfs.DropGroup(fd, group)
	}
	return quiet(named("drop a group", err))
}

// Sweep takes away the groups in which no subvolume is left. Cost: some
// microseconds a group.
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

// forget takes away a group whose members, none of which is there any more, were these.
// Who has joined since stays in it, and so it stays: nothing is locked between a sweep
// and a new limit.
func forget(fd int, group uint64, members []uint64) error {
	for _, m := range members {
		if m>>48 >= Level {
			continue // not a member: a group that this one is in
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

// Used is what the members of a group hold together, with what is promised to them and
// not yet on the disk: all that counts for the limit. Errors: fs.ErrNotExist.
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

// quiet: without quotas, or the right to have set one, nothing is held.
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
