package hostview

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/internal/run"
	"golang.org/x/sys/unix"
)

var aLongTimeAgo = time.Unix(1, 0)

// Unmount detaches any mount at a view's directory at, also if the process that served it was killed, and
// removes the directory. Nothing there is no error. Another user than root needs fusermount3.
func Unmount(ctx context.Context, at string) error {
	for mounted(at) {
		var err error
		if os.Geteuid() == 0 {
			err = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		} else {
			_, err = run.Output(ctx, "fusermount3", "-u", "-z", at)
		}
		if err != nil && mounted(at) { // its process may have ended meanwhile, and the mount with it
			return &os.PathError{Op: "umount", Path: at, Err: err}
		}
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveEmpty removes the two directories above the path at, at which a view (a container's directory shown
// on the host) was mounted, unless they hold other views.
func RemoveEmpty(at string) {
	dir := filepath.Dir(at)
	_, _ = os.Remove(dir), os.Remove(filepath.Dir(dir))
}

// mounted reports whether something is mounted at the directory at. A FUSE mount whose process was killed
// counts.
func mounted(at string) bool {
	var here unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, at, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &here); err != nil {
		return errors.Is(err, unix.ENOTCONN)
	}
	return here.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// Alive reports whether a view, a container's directory shown on the host, is mounted at the directory at and
// the process that serves it runs.
func Alive(at string) bool {
	var st unix.Stat_t
	return mounted(at) && unix.Lstat(at, &st) == nil
}
