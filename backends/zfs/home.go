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

// homeRecord returns the path of the file that records that home, a dataset .snapfs for forks, belongs to
// snapfs, so that later calls need not run zfs(8).
func homeRecord(home string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, home) // it never fails
	return homes + "/" + strconv.FormatUint(h.Sum64(), 16)
}

// makeHome makes the dataset home, .snapfs, which contains the forks, unless it exists. ErrDenied: a dataset
// of that name lacks the user property with which snapfs marks its own.
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

// checkHome returns an error unless home, a dataset for forks, has the user property with which snapfs marks
// its own. It waits for another process that is making the dataset, because ZFS sets the properties of a new
// filesystem an instant after it exists.
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
				Hints: []string{"zfs rename " + errs.Quoted(home) + " " + errs.Quoted(strings.Replace(home, "/"+homeName, "/snapfs-old", 1))},
			}
		}
	}
}
