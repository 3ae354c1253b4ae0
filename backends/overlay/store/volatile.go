//go:build linux

package store

import (
	"errors"
	"io/fs"
	"os"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// KernelMark is the path of the directory that a volatile overlay leaves in its work directory
// (Documentation/filesystems/overlayfs, "Volatile mount"). The overlay's syncs had no effect,
// and the kernel refuses to mount the layer again until that directory is removed:
//
//   - If it is of this boot, all writes are in the page cache or on the disk. Sync syncs the
//     filesystem and removes the directory. Seal instead notes it on the frozen layer, as "unsettled".
//   - If it is of an earlier boot, unwritten pages may be lost. Every method refuses such a layer,
//     with an error that names its path.
const KernelMark = "/work/incompat/volatile"

// IsVolatile reports whether the work directory of a layer has the [KernelMark]. The mark is
// inside a directory of mode 000 of the user who mounted the overlay.
func (s *Store) IsVolatile(layer string) (bool, error) {
	path := s.WorkPath(layer) + KernelMark
	for range 2 {
		_, err := vfs.Lstat(unix.AT_FDCWD, path)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case !errors.Is(err, fs.ErrPermission):
			return false, err
		}
		// The kernel itself ignores these modes, all of which are 000.
		for _, dir := range []string{"/work", "/work/incompat", KernelMark} {
			if err := os.Chmod(s.WorkPath(layer)+dir, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
	}
	return false, Refuse(errs.ErrDenied, path, "no permission to look for the mark of a volatile overlay")
}
