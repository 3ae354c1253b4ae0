package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
)

// Most requests of an overlay to its lower are for nothing: a GETXATTR of each regular file, for an attribute
// that marks a file without content (ovl_check_metacopy_xattr in fs/overlayfs/util.c), and an OPEN of each file
// where passthrough is in use. A filesystem can disable either request, but only for all of its files. So a
// lower is shown by two filesystems. The cached view has small files without attributes, which are nearly all
// files, and disables both requests. The uncached view, below it, has the other files, and shows the
// directories of the cached view as empty ones.

// viewOf returns the handler of FUSE requests for a view: all itself for the whole tree, or a handler above
// it that shows the part that the view names.
func viewOf(all raw, view layer.View) fuse.RawFileSystem {
	switch view {
	case layer.Cached:
		return cachedView{all}
	case layer.Uncached:
		return uncachedView{all}
	default:
		return all
	}
}

// A cachedView answers FUSE requests for the view [layer.Cached]: directories and small files, which the
// kernel caches.
type cachedView struct{ raw }

// whiteout is the inode id of a whiteout device, which the cached view returns for every name that does not
// exist: an overlay then does not look for the name in the other view.
const whiteout = 1 << 63

var whiteoutAttr = layer.Attr{Ino: whiteout, Mode: unix.S_IFCHR, Nlink: 1}

// Lookup looks a name up in the cached view, which shows directories and small files. For a file of the
// uncached view it returns no entry, so that overlayfs looks there.
func (c cachedView) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, err := c.f.Lookup(h.NodeId, name)
	switch {
	case err != nil:
	case e.ID == 0:
		e = layer.Entry{ID: whiteout, Attr: whiteoutAttr}
	case !c.shows(&e):
		e = layer.Entry{}
	}
	return c.entry(out, e, err)
}

// shows reports whether the inode e, which the kernel has looked up, is in the cached view, the FUSE mount of
// directories and small files. If it is not, shows drops the kernel's reference to the inode.
func (c cachedView) shows(e *layer.Entry) bool {
	if c.f.View(e.ID) == layer.Cached {
		return true
	}
	c.f.Forget(e.ID, 1)
	return false
}

// GetAttr answers the kernel's request for the attributes of an inode, also for those of the whiteout device
// that stands for missing names.
func (c cachedView) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == whiteout {
		return attr(out, &whiteoutAttr, nil)
	}
	return c.raw.GetAttr(cancel, in, out)
}

// ReadDirPlus lists all names of a directory, but with attributes only for the directories and small files of
// the cached view; overlayfs finds the others in the uncached view, a second FUSE mount.
func (c cachedView) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return c.listPlus(in, out, c.shows)
}

// Open answers the kernel's first OPEN request for a small file of the cached view with ENOSYS. After that
// the kernel opens files of this mount without a request.
func (cachedView) Open(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return fuse.ENOSYS
}

// GetXAttr answers the kernel's request for an extended attribute with ENOSYS. The kernel then treats all
// files of the cached view (the FUSE mount of small files without such attributes) as having none. Programs
// above the overlay get EOPNOTSUPP, as on a filesystem without attributes.
func (cachedView) GetXAttr(_ <-chan struct{}, _ *fuse.InHeader, _ string, _ []byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// ListXAttr answers the kernel's request for the names of extended attributes with an empty list: files that
// have some are in the uncached view.
func (cachedView) ListXAttr(_ <-chan struct{}, _ *fuse.InHeader, _ []byte) (uint32, fuse.Status) {
	return 0, fuse.OK
}

// An uncachedView answers FUSE requests for the view [layer.Uncached], the mount of files that are large or
// have extended attributes or several links: it shows every file that overlayfs looks up in it. A directory
// of the cached view has an empty listing here, because the cached view lists all names.
type uncachedView struct{ raw }

// Lookup answers the kernel's request to look up a name in the uncached view, the FUSE mount of the files that
// the kernel does not cache. It pins the inode to that view, because overlayfs remembers in which layer it found
// a name.
func (a uncachedView) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	code := a.raw.Lookup(cancel, h, name, out)
	if code == fuse.OK && out.NodeId != 0 {
		a.f.PinUncached(out.NodeId)
	}
	return code
}

// ReadDir lists a directory in the uncached view, one of the two FUSE mounts of a lower, if the cached view lacks
// it. Any other directory is empty here, since the cached view lists its names.
func (a uncachedView) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if a.f.View(in.NodeId) == layer.Cached {
		return fuse.OK
	}
	return a.raw.ReadDir(cancel, in, out)
}

// ReadDirPlus answers the kernel's READDIRPLUS in the uncached view, one of the two FUSE mounts of a lower: it
// lists a directory like ReadDir, and looks each name up.
func (a uncachedView) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if a.f.View(in.NodeId) == layer.Cached {
		return fuse.OK
	}
	return a.listPlus(in, out, func(e *layer.Entry) bool {
		a.f.PinUncached(e.ID)
		return true
	})
}
