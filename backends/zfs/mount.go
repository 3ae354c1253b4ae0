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

// ensureMounted mounts the dataset of the snapshot or fork m with noatime, unless it is mounted. Snapshots
// are read-only. Errors: ErrNotFound (no such dataset: the creation was interrupted, or the pool is not
// imported), ErrDenied (the encryption key is not loaded), ErrDrifted (the tree's path in the dataset
// contains a symbolic link).
func (r dataDir) ensureMounted(m mark) error {
	if err := r.mount(m); err != nil || m.within == "." {
		return err
	}
	return r.checkPath(m)
}

// checkPath returns ErrDrifted if the path of the tree in the mounted dataset contains a symbolic
// link. The owner of a parent directory may have put one there before the capture, and users of the
// view would follow it.
func (r dataDir) checkPath(m mark) error {
	// RESOLVE_BENEATH permits crossing into the mounted filesystem.
	dir, err := vfs.OpenBeneath(r.fd(), m.kind+"/"+m.id+"/"+treeName+"/"+m.within, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		return dir.Close()
	}
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return &errs.Error{
		Kind: errs.ErrDrifted, Path: m.tree,
		Err: errors.New("at the capture, a symbolic link or another file was in place of the directory, or of a parent of it"),
	}
}

func (r dataDir) mount(m mark) error {
	entry := m.kind + "/" + m.id
	if r.mounted(entry) {
		return nil
	}
	dir, err := vfs.OpenBeneath(r.fd(), entry+"/"+treeName, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return notFoundIfMissing(err)
	}
	defer dir.Close()
	flags := uintptr(unix.MS_NOATIME)
	if isSnapshot(m.dataset) {
		flags |= unix.MS_RDONLY
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Mount(m.dataset, vfs.FDPath(dir), "zfs", flags, "")
		switch {
		case err == nil || r.mounted(entry): // mounted by another process
			return nil
		case err == unix.ENOENT:
			return missingDataset(m)
		case err == unix.EACCES:
			return &errs.Error{
				Kind: errs.ErrDenied, Path: m.dataset, Err: errors.New("the encryption key of the dataset is not loaded"),
				Hints: []string{"sudo zfs load-key -r " + m.source},
			}
		case err != unix.EBUSY || time.Since(began) > 2*time.Second: // EBUSY: the last mount is just going away
			return &os.PathError{Op: "mount", Path: m.dataset, Err: err}
		}
	}
}

// mounted reports whether the snapshot or fork whose directory is entry is mounted in this mount namespace.
func (r dataDir) mounted(entry string) bool {
	dir, err := vfs.OpenBeneath(r.fd(), entry, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer dir.Close()
	st, err := vfs.Lstat(int(dir.Fd()), treeName)
	return err == nil && st.MountRoot
}

// unmount unmounts the snapshot or fork whose directory is entry. With busy it returns ErrBusy while a
// process uses the mount; otherwise the mount ends with its last user.
func (r dataDir) unmount(entry string, busy bool) error {
	dir, err := vfs.OpenBeneath(r.fd(), entry, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return notFoundIfMissing(err)
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
			return &errs.Error{Kind: errs.ErrBusy, Path: entry, Err: errors.New("a process uses it"), Hints: []string{"fuser -vm " + errs.Quoted(r.Name()+"/"+entry+"/"+treeName)}}
		case err != nil && err != unix.EINVAL: // EINVAL: another process has unmounted it
			return &os.PathError{Op: "unmount", Path: entry, Err: err}
		}
	}
}
