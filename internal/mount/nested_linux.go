package mount

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// WrapLower mounts a read-only overlay of the directory path alone, detached.
// As the lowest layer of another overlay it stands for path where path itself
// may not: overlayfs refuses a layer that lies in another one (ELOOP, from
// ovl_check_layer in fs/overlayfs/super.c), and the layers that a sandbox of /
// keeps under /var/lib lie in /. The wrapped directory is on a filesystem of
// its own, the overlay, so that nothing lies in it.
//
// The kernel allows two overlays on top of each other, so the answer can only
// be a layer of one that nothing else is stacked on. Cost: 0.1 ms, and the
// look-up of each name not yet cached goes through one layer more.
// A mount that is attached nowhere can be a layer since Linux 6.15; before,
// the caller attaches it somewhere first. Errors are *MountError.
func WrapLower(path string, userXattr bool) (*os.File, error) {
	c, err := Fsopen("tmpfs")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	empty, err := c.Mount(0) // overlayfs wants two layers where it has no upper
	if err != nil {
		return nil, err
	}
	defer empty.Close()
	return mountOverlay(Overlay{Lower: []string{path, vfs.FDPath(empty)}, UserXattr: userXattr})
}

func mountNested(o Overlay) (*os.File, error) {
	last := len(o.Lower) - 1
	base, err := WrapLower(o.Lower[last], o.UserXattr)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	o.Lower = append(append([]string{}, o.Lower[:last]...), vfs.FDPath(base))
	o.Nested = false
	return NewOverlay(o)
}
