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

// KernelMark is the path in a work directory that a volatile overlay leaves behind
// (Documentation/filesystems/overlayfs, "Volatile mount"). The overlay's syncs had no effect, and the kernel
// refuses to mount the layer again until that directory is removed. The backend removes it as
// follows:
//
//   - The directory exists and is of this boot: all writes are in the page cache or on the disk,
//     and nothing is lost. Sync syncs the filesystem and removes the directory. Seal instead
//     notes it on the frozen layer, as "unsettled".
//   - The directory is of an earlier boot: the machine may have crashed with unwritten pages. Every
//     verb refuses such a layer, with an error that names its path.
const KernelMark = "/work/incompat/volatile"

// IsVolatile reports whether the work directory of a layer has the kernel's mark. The mark is
// inside a directory of mode 000, which belongs to the user who mounted the overlay.
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
