//go:build linux

package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"golang.org/x/sys/unix"
)

// disks returns the numbers of the whole disks to which these devices belong, without duplicates. Limits on
// reading and writing apply to them, because a partition has no rate limits of its own.
func disks(devices []uint64) ([]uint64, error) {
	var list []uint64
	for _, dev := range devices {
		disk, err := diskOf(dev)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(list, disk) {
			list = append(list, disk)
		}
	}
	return list, nil
}

func diskOf(dev uint64) (uint64, error) {
	dir := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	if unix.Major(dev) == 0 {
		return 0, &errs.Error{
			Op: "limiting a disk", Path: fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)), Kind: errs.ErrNotSupported,
			Err: errors.New("the device number of this filesystem (such as btrfs, ZFS, overlay, tmpfs or a network filesystem) is not a disk's"),
		}
	}
	if _, err := os.Stat(dir + "/partition"); err != nil {
		if _, err := os.Stat(dir); err != nil {
			return 0, failed("limiting a disk", dir, err)
		}
		return dev, nil
	}
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return 0, failed("limiting a disk", dir, err)
	}
	return readDev(filepath.Dir(path) + "/dev")
}

func readDev(file string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, failed("limiting a disk", file, err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err != nil {
		return 0, failed("limiting a disk", file, err)
	}
	return unix.Mkdev(major, minor), nil
}

// DisksOf returns the device numbers of the disks that hold the file or directory at path, for
// [Options.Devices]: those of its filesystem, all of them for a btrfs with several. The error matches
// [errs.ErrNotSupported] if the filesystem has no disk or does not name it. Cost: 0.1 ms.
func DisksOf(path string) ([]uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st); err != nil {
		return nil, failed("looking for the disk", path, err)
	}
	if st.Dev_major != 0 {
		return disks([]uint64{unix.Mkdev(st.Dev_major, st.Dev_minor)})
	}
	mounts, err := mount.List()
	if err != nil {
		return nil, failed("looking for the disk", path, err)
	}
	i := slices.IndexFunc(mounts, func(m mount.Point) bool { return uint64(m.ID) == st.Mnt_id })
	if i < 0 || !strings.HasPrefix(mounts[i].Source, "/dev/") {
		kind := "its filesystem"
		if i >= 0 {
			kind = mounts[i].Type
		}
		return nil, &errs.Error{Op: "looking for the disk", Path: path, Kind: errs.ErrNotSupported, Err: errors.New(kind + " has no disk of its own")}
	}
	source, err := filepath.EvalSymlinks(mounts[i].Source)
	if err != nil {
		return nil, failed("looking for the disk", mounts[i].Source, err)
	}
	// For btrfs, sysfs lists all devices, whichever of them the mount names.
	together, _ := filepath.Glob("/sys/fs/btrfs/*/devices/" + filepath.Base(source))
	if len(together) == 0 {
		together = []string{"/sys/class/block/" + filepath.Base(source)}
	} else {
		together, _ = filepath.Glob(filepath.Dir(together[0]) + "/*")
	}
	var devices []uint64
	for _, dir := range together {
		dev, err := readDev(dir + "/dev")
		if err != nil {
			return nil, err
		}
		devices = append(devices, dev)
	}
	return disks(devices)
}
