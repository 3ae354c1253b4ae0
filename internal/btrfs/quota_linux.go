package btrfs

import (
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Quotas of btrfs. The charge of a subvolume is the usage of the group with its id. A
// group of a higher level sums up its members; with simple quotas a subvolume created
// inside another one joins that one's groups (measured on Linux 6.18; fs/btrfs/qgroup.c, qgroup_auto_inherit).

const (
	btrfsQuotaCtl     = 40
	btrfsQgroupAssign = 41
	btrfsQgroupCreate = 42
	btrfsQgroupLimit  = 43

	quotaTree, groupInfo, groupRelation = 8, 242, 246

	rootTree, rootBackref = 1, 144
)

// QuotaMode is how a btrfs filesystem accounts the bytes of its subvolumes: off, simple or full.
type QuotaMode string

// The quota modes of a btrfs filesystem: no accounting, simple quotas, which charge each subvolume for the
// bytes that it wrote itself, and full quota groups, which track sharing. With full ones, removing one of a
// hundred snapshots blocks the whole filesystem for 80 seconds.
const (
	QuotaOff    QuotaMode = "off"
	QuotaSimple QuotaMode = "simple"
	QuotaFull   QuotaMode = "full"
)

// QuotaModeOf reads the quota mode of the btrfs filesystem of fd from sysfs, which any user may. Before Linux
// 5.9, whose sysfs lacks it, QuotaModeOf returns QuotaOff.
func QuotaModeOf(fd int) (QuotaMode, error) {
	id, err := FilesystemUUID(fd)
	if err != nil {
		return "", err
	}
	dir := "/sys/fs/btrfs/" + id.String() + "/qgroups/"
	switch {
	case !sysfsSays(dir+"enabled", "1"):
		return QuotaOff, nil
	case sysfsSays(dir+"mode", "squota"):
		return QuotaSimple, nil
	}
	return QuotaFull, nil
}

func sysfsSays(path, want string) bool {
	text, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(text)) == want
}

// SetQuota sets the quota mode of the btrfs filesystem of fd. Accounting covers only data written from then
// on. Simple quotas need Linux 6.7 (EINVAL before), and older kernels then refuse to mount the filesystem. A
// repeated call does no harm. Only root may.
func SetQuota(fd int, mode QuotaMode) error {
	args := struct{ cmd, status uint64 }{cmd: map[QuotaMode]uint64{QuotaFull: 1, QuotaOff: 2, QuotaSimple: 4}[mode]}
	err := btrfsIoctl(fd, IocRead|IocWrite, btrfsQuotaCtl, unsafe.Sizeof(args), unsafe.Pointer(&args))
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// SimpleQuota reports whether this kernel has btrfs's simple quotas, with which the backend limits the bytes
// of a subvolume.
func SimpleQuota() bool {
	return sysfsSays("/sys/fs/btrfs/features/simple_quota", "0") || sysfsSays("/sys/fs/btrfs/features/simple_quota", "1")
}

// MayLimit returns EPERM if this process may not change quotas of the btrfs filesystem of fd, otherwise nil.
// It tests this with an invalid request, which changes nothing.
func MayLimit(fd int) error {
	err := btrfsGroup(fd, 0, false)
	if err == unix.EPERM || err == unix.EROFS {
		return err
	}
	return nil
}

// Group returns the id of the btrfs quota group with this level, above 0, and this number within the level,
// usually a subvolume's id.
func Group(level uint16, id uint64) uint64 { return uint64(level)<<48 | id }

// AddGroup creates the btrfs quota group with the id group on the filesystem of fd; an existing one is no
// error. Only root may. ENOTCONN: quotas are off.
func AddGroup(fd int, group uint64) error {
	err := btrfsGroup(fd, group, true)
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// DropGroup removes a btrfs quota group of the filesystem of fd. EBUSY: it has members; ENOENT: it does not
// exist; ENOTCONN: quotas are off. Only root may.
func DropGroup(fd int, group uint64) error { return btrfsGroup(fd, group, false) }

func btrfsGroup(fd int, group uint64, add bool) error {
	args := struct{ add, group uint64 }{group: group}
	if add {
		args.add = 1
	}
	return btrfsIoctl(fd, IocWrite, btrfsQgroupCreate, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// JoinGroup makes member, a subvolume or quota group of the btrfs filesystem of fd, a member of the quota
// group, of a higher level, which is then charged for the member's bytes too. A repeated call does no harm.
// Only root may.
func JoinGroup(fd int, member, group uint64) error {
	err := btrfsMember(fd, member, group, true)
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// LeaveGroup ends the membership of member in a quota group that [JoinGroup] made, on the btrfs filesystem of
// fd. A repeated call does no harm.
func LeaveGroup(fd int, member, group uint64) error {
	err := btrfsMember(fd, member, group, false)
	if err == unix.ENOENT {
		return nil
	}
	return err
}

func btrfsMember(fd int, member, group uint64, join bool) error {
	args := struct{ join, member, group uint64 }{member: member, group: group}
	if join {
		args.join = 1
	}
	return btrfsIoctl(fd, IocWrite, btrfsQgroupAssign, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// Members returns the ids of a quota group's members, on the btrfs filesystem of fd, as of the last commit or
// later. Only root may.
func Members(fd int, group uint64) ([]uint64, error) {
	var members []uint64
	key := Range{Tree: quotaTree, MinObject: group, MaxObject: group, MinType: groupRelation, MaxType: groupRelation}
	err := Search(fd, key, func(it Item) bool {
		if it.Type == groupRelation && it.Object == group {
			members = append(members, it.Offset)
		}
		return true
	})
	if err == unix.ENOENT {
		err = nil // quotas are off
	}
	return members, err
}

// Groups returns the ids of all quota groups of a level on the btrfs filesystem of fd. Only root may.
func Groups(fd int, level uint16) ([]uint64, error) {
	var groups []uint64
	low := Group(level, 0)
	key := Range{Tree: quotaTree, MinType: groupInfo, MaxType: groupInfo, MinOffset: low, MaxOffset: low | 1<<48 - 1}
	err := Search(fd, key, func(it Item) bool {
		if it.Type == groupInfo && it.Offset>>48 == uint64(level) {
			groups = append(groups, it.Offset)
		}
		return true
	})
	if err == unix.ENOENT {
		err = nil
	}
	return groups, err
}

// Limit limits the bytes charged to a subvolume or quota group of the btrfs filesystem of fd to n; a negative
// n removes the limit. Writes beyond the limit fail with EDQUOT, also for root. Only root may; quotas must be
// on.
func Limit(fd int, group uint64, n int64) error {
	const maxReferenced = 1
	args := struct {
		group, flags                                  uint64
		maxReferenced, maxOwn, reservedRef, reservedX uint64
	}{group: group, flags: maxReferenced, maxReferenced: uint64(n)}
	return btrfsIoctl(fd, IocRead, btrfsQgroupLimit, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// Usage returns the bytes charged to the subvolume or quota group id of the btrfs filesystem of fd: with
// simple quotas, the bytes that it wrote itself. ENODATA: quotas are off, or there is no such group. Only
// root may.
func Usage(fd int, id uint64) (int64, error) {
	key := Range{Tree: quotaTree, MinType: groupInfo, MaxType: groupInfo, MinOffset: id, MaxOffset: id}
	used := int64(-1)
	err := Search(fd, key, func(it Item) bool {
		if it.Type == groupInfo && it.Offset == id && len(it.Data) >= 16 {
			used = int64(le64(it.Data[8:])) // generation, referenced, …
		}
		return true
	})
	switch {
	case err == unix.ENOENT, err == nil && used < 0:
		return 0, unix.ENODATA
	}
	return used, err
}

// IsThere reports whether the subvolume with this id exists under a name on the btrfs filesystem of fd. A
// subvolume that the kernel is still destroying has no name. Only root may.
func IsThere(fd int, id uint64) bool {
	found := false
	key := Range{Tree: rootTree, MinObject: id, MaxObject: id, MinType: rootBackref, MaxType: rootBackref}
	err := Search(fd, key, func(it Item) bool {
		found = found || it.Object == id && it.Type == rootBackref
		return !found
	})
	return found || err != nil
}
