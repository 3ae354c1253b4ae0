//go:build linux

package zfs

import (
	"errors"
	"os"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// reach mounts what an entry holds, unless it is. A snapshot is read-only by
// nature. Access times are not kept: each would be a change.
// Errors: ErrNotFound (there is no such dataset: the entry is half made, or the pool is away); ErrDenied (its
// encryption key is not loaded); ErrDrifted (the tree in it is behind a symbolic link).
func (r room) reach(m mark) error {
	if err := r.mount(m); err != nil || m.within == "." {
		return err
	}
	return r.beneath(m)
}

// beneath looks whether the tree is in what is mounted, and not behind a symbolic link that whoever owns a
// directory above it put there while it was captured: those who follow the view would follow that.
func (r room) beneath(m mark) error {
	// What is mounted is another filesystem, which RESOLVE_BENEATH does not mind.
	dir, err := vfs.OpenBeneath(r.fd(), m.kind+"/"+m.id+"/"+treeName+"/"+m.within, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		return dir.Close()
	}
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return &problem{
		kind: errs.ErrDrifted, path: m.tree,
		why: "when it was captured, a symbolic link or something else had taken the place of the directory, or of one above it",
	}
}

func (r room) mount(m mark) error {
	entry := m.kind + "/" + m.id
	if r.mounted(entry) {
		return nil
	}
	dir, err := vfs.OpenBeneath(r.fd(), entry+"/"+treeName, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return absent(err)
	}
	defer dir.Close()
	flags := uintptr(unix.MS_NOATIME)
	if isSnapshot(m.dataset) {
		flags |= unix.MS_RDONLY
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Mount(m.dataset, vfs.FDPath(dir), "zfs", flags, "")
		switch {
		case err == nil || r.mounted(entry): // by another process
			return nil
		case err == unix.ENOENT:
			return lost(m)
		case err == unix.EACCES:
			return &problem{
				kind: errs.ErrDenied, path: m.dataset, why: "its encryption key is not loaded",
				hints: []string{"sudo zfs load-key -r " + m.source},
			}
		case err != unix.EBUSY || time.Since(began) > 2*time.Second: // busy: its last mount is going
			return &os.PathError{Op: "mount", Path: m.dataset, Err: err}
		}
	}
}

// mounted reports whether something is mounted as the tree of an entry.
func (r room) mounted(entry string) bool {
	dir, err := vfs.OpenBeneath(r.fd(), entry, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer dir.Close()
	st, err := vfs.Lstat(int(dir.Fd()), treeName)
	return err == nil && st.MountRoot
}

// leave unmounts the tree of an entry. With busy it fails with ErrBusy while
// somebody uses it; otherwise it goes when nobody does.
func (r room) leave(entry string, busy bool) error {
	dir, err := vfs.OpenBeneath(r.fd(), entry, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return absent(err)
	}
	defer dir.Close()
	flags := unix.UMOUNT_NOFOLLOW
	if !busy {
		flags |= unix.MNT_DETACH
	}
	for {
		st, err := vfs.Lstat(int(dir.Fd()), treeName)
		if errors.Is(err, os.ErrNotExist) || err == nil && !st.MountRoot {
			return nil
		}
		if err == nil {
			err = unix.Unmount(vfs.FDPath(dir)+"/"+treeName, flags)
		}
		switch {
		case err == unix.EBUSY:
			return &problem{kind: errs.ErrBusy, path: entry, why: "somebody uses it", hints: []string{"fuser -vm " + r.Name() + "/" + entry + "/" + treeName}}
		case err != nil && err != unix.EINVAL: // another has unmounted it
			return &os.PathError{Op: "unmount", Path: entry, Err: err}
		}
	}
}
