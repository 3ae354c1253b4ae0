//go:build linux

package zfs

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// homeRecord is the file that says that a home was made by us, or found to be
// ours, so that nobody has to ask zfs(8) again.
func homeRecord(home string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, home) // it never fails
	return homes + "/" + strconv.FormatUint(h.Sum64(), 16)
}

// settleHome makes the dataset that forks are made in, unless there is one. A
// dataset of that name that lacks our mark is left alone: ErrDenied.
func (r room) settleHome(ctx context.Context, home string) error {
	record := homeRecord(home)
	if r.has(record) {
		return nil
	}
	// Of a hundred that begin at once one asks, and not each.
	lock, err := vfs.OpenBeneath(r.fd(), homes, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	if err := vfs.Flock(lock, unix.LOCK_EX); err != nil {
		lock.Close()
		return err
	}
	defer vfs.Unlock(lock)
	if r.has(record) {
		return nil
	}
	if err := fault.Point(ctx, "make a dataset for forks"); err != nil {
		return err
	}
	_, err = zfsCmd(ctx, "create", "-o", "mountpoint=legacy", "-o", "canmount=off", "-o", marked(homeMark), home)
	if errors.Is(err, errs.ErrExists) {
		err = ownHome(ctx, home)
	}
	if err != nil {
		return err
	}
	err = r.writeFile(record, home+"\n")
	if errors.Is(err, unix.EEXIST) {
		return nil // another process was quicker
	}
	return err
}

func (r room) has(path string) bool {
	return unix.Faccessat(r.fd(), path, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// ownHome checks that a home is ours. Another process may be about to make it:
// ZFS gives a new filesystem its properties an instant after it is there.
func ownHome(ctx context.Context, home string) error {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		is, err := zfsCmd(ctx, "get", "-H", "-p", "-s", "local", "-o", "value", property, home)
		if err != nil {
			return err
		}
		if is = strings.TrimSuffix(is, "\n"); is == homeMark {
			return nil
		}
		if is != "" || time.Since(began) > 2*time.Second {
			return &problem{
				kind: errs.ErrDenied, path: home, why: "it is not a dataset that snapfs made",
				hints: []string{"zfs rename " + home + " " + strings.Replace(home, "/"+homeName, "/snapfs-old", 1)},
			}
		}
	}
}
