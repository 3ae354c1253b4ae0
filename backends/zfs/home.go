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

// homeRecord returns the file that records that a home belongs to snapfs, so that zfs(8) is asked
// only once.
func homeRecord(home string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, home) // it never fails
	return homes + "/" + strconv.FormatUint(h.Sum64(), 16)
}

// makeHome makes the dataset that contains the forks, unless it exists. It does not touch a
// dataset of that name without snapfs's mark: ErrDenied.
func (r dataDir) makeHome(ctx context.Context, home string) error {
	record := homeRecord(home)
	if r.has(record) {
		return nil
	}
	// Of many concurrent calls only one runs zfs(8).
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
		err = checkHome(ctx, home)
	}
	if err != nil {
		return err
	}
	err = r.writeFile(record, home+"\n")
	if errors.Is(err, unix.EEXIST) {
		return nil // another process wrote it first
	}
	return err
}

func (r dataDir) has(path string) bool {
	return unix.Faccessat(r.fd(), path, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// checkHome checks that a home has snapfs's mark. Another process may be making it: ZFS sets the
// properties of a new filesystem an instant after it exists.
func checkHome(ctx context.Context, home string) error {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		is, err := zfsCmd(ctx, "get", "-H", "-p", "-s", "local", "-o", "value", property, home)
		if err != nil {
			return err
		}
		if is = strings.TrimSuffix(is, "\n"); is == homeMark {
			return nil
		}
		if is != "" || time.Since(began) > 2*time.Second {
			return &errs.Error{
				Kind: errs.ErrDenied, Path: home, Err: errors.New("not a dataset that snapfs made"),
				Hints: []string{"zfs rename " + home + " " + strings.Replace(home, "/"+homeName, "/snapfs-old", 1)},
			}
		}
	}
}
