package mount

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// wrapLower returns a detached, read-only overlay mount of the directory path alone. It can serve as the
// lowest layer of another overlay where path itself may not: overlayfs refuses a layer that contains another
// layer (ELOOP, ovl_check_layer in fs/overlayfs/super.c), as / contains the upper layers in /var/lib. With
// userXattr, overlayfs's marks in path are user.overlay.* attributes, otherwise trusted.overlay.* ones.
//
// The kernel allows at most two stacked overlays, so an overlay on this layer cannot be a layer itself.
// Before Linux 6.15 the caller must attach the mount before using it as a layer. Cost: 0.1 ms, and one more
// layer for each uncached lookup. Errors wrap the error number.
func wrapLower(path string, userXattr bool) (*os.File, error) {
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
	base, err := wrapLower(o.Lower[last], o.UserXattr)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	o.Lower = append(append([]string{}, o.Lower[:last]...), vfs.FDPath(base))
	o.Nested = false
	return NewOverlay(o)
}
