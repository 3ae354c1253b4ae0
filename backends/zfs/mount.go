//go:build linux

package zfs

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
)

// reach mounts what an entry holds, unless it is. A snapshot is read-only by
// nature. Access times are not kept: each would be a change.
// Errors: ErrNotFound (there is no such dataset: the entry is half made, or the pool is away); ErrDenied (its
// encryption key is not loaded).
func (r room) reach(m mark) error {
	entry := m.kind + "/" + m.id
	if r.mounted(entry) {
		return nil
	}
	dir, err := kernel.OpenBeneath(r.fd(), entry+"/"+treeName, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return absent(err)
	}
	defer dir.Close()
	flags := uintptr(unix.MS_NOATIME)
	if isSnapshot(m.dataset) {
		flags |= unix.MS_RDONLY
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Mount(m.dataset, kernel.FDPath(dir), "zfs", flags, "")
		switch {
		case err == nil || r.mounted(entry): // by another process
			return nil
		case err == unix.ENOENT:
			if err := imported(m.dataset); err != nil {
				return err
			}
			return notFound("not found")
		case err == unix.EACCES:
			return &problem{
				kind: snapshot.ErrDenied, path: m.dataset, why: "its encryption key is not loaded",
				hints: []string{"sudo zfs load-key -r " + m.source},
			}
		case err != unix.EBUSY || time.Since(began) > 2*time.Second: // busy: its last mount is going
			return &os.PathError{Op: "mount", Path: m.dataset, Err: err}
		}
	}
}

// mounted reports whether something is mounted as the tree of an entry.
func (r room) mounted(entry string) bool {
	dir, err := kernel.OpenBeneath(r.fd(), entry, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer dir.Close()
	st, err := kernel.Lstat(int(dir.Fd()), treeName)
	return err == nil && st.MountRoot
}

// leave unmounts the tree of an entry. With busy it fails with ErrBusy while
// somebody uses it; otherwise it goes when nobody does.
func (r room) leave(entry string, busy bool) error {
	dir, err := kernel.OpenBeneath(r.fd(), entry, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return absent(err)
	}
	defer dir.Close()
	flags := unix.UMOUNT_NOFOLLOW
	if !busy {
		flags |= unix.MNT_DETACH
	}
	for {
		st, err := kernel.Lstat(int(dir.Fd()), treeName)
		if errors.Is(err, os.ErrNotExist) || err == nil && !st.MountRoot {
			return nil
		}
		if err == nil {
			err = unix.Unmount(kernel.FDPath(dir)+"/"+treeName, flags)
		}
		switch {
		case err == unix.EBUSY:
			return &problem{kind: snapshot.ErrBusy, path: entry, why: "somebody uses it", hints: []string{"fuser -vm " + r.Name() + "/" + entry + "/" + treeName}}
		case err != nil && err != unix.EINVAL: // another has unmounted it
			return &os.PathError{Op: "unmount", Path: entry, Err: err}
		}
	}
}
