package kernel

import (
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls that concern a whole btrfs filesystem: its identity, size, quotas and
// the queue of its cleaner.

const (
	btrfsQuotaCtl    = 40
	btrfsQgroupLimit = 43
)

type btrfsFsInfoArgs struct {
	maxID, devices                  uint64
	fsid                            UUID
	nodeSize, sectorSize, alignment uint32
	csumType, csumSize              uint16
	flags, generation               uint64
	metadata                        UUID
	_                               [944]byte
}

// BtrfsUUID is the identity of the filesystem that holds fd.
func BtrfsUUID(fd int) (UUID, error) {
	var a btrfsFsInfoArgs
	err := btrfsIoctl(fd, iocRead, btrfsFsInfo, unsafe.Sizeof(a), unsafe.Pointer(&a))
	return a.fsid, err
}

// BtrfsGrow makes the filesystem fill its (first) device. Root only.
func BtrfsGrow(fd int) error {
	var args btrfsVolArgs
	copy(args.name[:], "max")
	return btrfsIoctl(fd, iocWrite, btrfsResize, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// BtrfsCommit writes all buffered data of the filesystem and wakes its cleaner,
// which otherwise waits up to 30 seconds before it frees removed subvolumes.
func BtrfsCommit(fd int) error {
	return btrfsIoctl(fd, iocNone, btrfsSync, 0, nil)
}

// BtrfsQueue is the number of removed subvolumes the cleaner has not freed yet.
// ENOTTY before Linux 6.13.
func BtrfsQueue(fd int) (int, error) {
	const count = 2 // BTRFS_SUBVOL_SYNC_COUNT
	args := struct {
		id   uint64
		mode uint32
		n    uint32
	}{mode: count}
	err := btrfsIoctl(fd, iocWrite, btrfsSubvolSync, unsafe.Sizeof(args), unsafe.Pointer(&args))
	return int(args.n), err
}

// BtrfsQuota is the way a filesystem counts what its subvolumes hold.
type BtrfsQuota string

// The ways of counting. Full groups make removing snapshots block the whole
// filesystem, for 80 seconds each where there are a hundred of them.
const (
	QuotaOff    BtrfsQuota = "off"
	QuotaSimple BtrfsQuota = "simple"
	QuotaFull   BtrfsQuota = "full"
)

// BtrfsQuotaMode reads the mode from sysfs; any user may. It is off where sysfs
// does not say, as before Linux 5.9, where only root could ask.
func BtrfsQuotaMode(fd int) (BtrfsQuota, error) {
	id, err := BtrfsUUID(fd)
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

// BtrfsSetQuota chooses how the filesystem counts; each way but off begins with
// what is written from then on. Simple quotas need Linux 6.7 (EINVAL before) and
// set a flag because of which older kernels refuse to mount the filesystem.
// Repeatable. Root only.
func BtrfsSetQuota(fd int, mode BtrfsQuota) error {
	args := struct{ cmd, status uint64 }{cmd: map[BtrfsQuota]uint64{QuotaFull: 1, QuotaOff: 2, QuotaSimple: 4}[mode]}
	err := btrfsIoctl(fd, iocRead|iocWrite, btrfsQuotaCtl, unsafe.Sizeof(args), unsafe.Pointer(&args))
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// BtrfsLimit limits what the subvolume with this id may write to n bytes, or
// lifts the limit when n is negative. Writes beyond it fail with EDQUOT. Root
// only, with quotas on.
func BtrfsLimit(fd int, id uint64, n int64) error {
	const maxReferenced = 1
	args := struct {
		group, flags                                  uint64
		maxReferenced, maxOwn, reservedRef, reservedX uint64
	}{group: id, flags: maxReferenced, maxReferenced: uint64(n)}
	return btrfsIoctl(fd, iocRead, btrfsQgroupLimit, unsafe.Sizeof(args), unsafe.Pointer(&args))
}

// BtrfsUsage is what the subvolume with this id is charged for: with simple
// quotas, the bytes that it wrote itself. Root only; ENODATA where quotas are off.
func BtrfsUsage(fd int, id uint64) (int64, error) {
	const quotaTree, groupInfo = 8, 242
	key := BtrfsRange{Tree: quotaTree, MinType: groupInfo, MaxType: groupInfo, MinOffset: id, MaxOffset: id}
	used := int64(-1)
	err := BtrfsSearch(fd, key, func(it BtrfsItem) bool {
		if it.Type == groupInfo && len(it.Data) >= 16 {
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
