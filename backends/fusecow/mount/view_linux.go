package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
)

// What an overlay asks of the tree beneath it is mostly for nothing: each regular file for an attribute that makes
// it one without content (ovl_check_metacopy_xattr in fs/overlayfs/util.c), and, where the kernel may read files
// by itself, each one that is opened for that. A filesystem can be without either call, but only for all of its
// files. So there are two: common has what is small and has no attributes, which is nearly everything, and answers to
// neither call; apart, beneath it, has the rest, and the directories of common, as empty ones.

// sideOf is what answers for a side of a filesystem.
func viewOf(all raw, side layer.View) fuse.RawFileSystem {
	switch side {
	case layer.Cached:
		return cachedView{all}
	case layer.Uncached:
		return uncachedView{all}
	default:
		return all
	}
}

// A commonSide shows what is [layer.Common].
type cachedView struct{ raw }

// whiteout is the number of a device that stands for every name that there is not: an overlay does not look for
// such a name on the other side.
const whiteout = 1 << 63

var whiteoutAttr = layer.Attr{Ino: whiteout, Mode: unix.S_IFCHR, Nlink: 1}

// Lookup has no name for what is apart.
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

// shows reports whether what was found is to be told of. What is not is not held either.
func (c cachedView) shows(e *layer.Entry) bool {
	if c.f.View(e.ID) == layer.Cached {
		return true
	}
	c.f.Forget(e.ID, 1)
	return false
}

// GetAttr knows the whiteout too.
func (c cachedView) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == whiteout {
		return attr(out, &whiteoutAttr, nil)
	}
	return c.raw.GetAttr(cancel, in, out)
}

// ReadDirPlus has all names, and no more than that of what is apart.
func (c cachedView) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return c.listPlus(in, out, c.shows)
}

// Open is asked once, and then every file is open.
func (cachedView) Open(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return fuse.ENOSYS
}

// GetXAttr is asked once, and then no file has any. Who looks through the overlay hears EOPNOTSUPP, as on a
// filesystem without attributes; one that had some would say ENODATA.
func (cachedView) GetXAttr(_ <-chan struct{}, _ *fuse.InHeader, _ string, _ []byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// ListXAttr has none to tell of.
func (cachedView) ListXAttr(_ <-chan struct{}, _ *fuse.InHeader, _ []byte) (uint32, fuse.Status) {
	return 0, fuse.OK
}

// An apartSide shows whatever it is asked for, which is what commonSide does not show. It has no list of a directory
// that is there too, where all names are.
type uncachedView struct{ raw }

// Lookup has what it tells of stay here: an overlay that has been told so has it from nowhere else.
func (a uncachedView) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	code := a.raw.Lookup(cancel, h, name, out)
	if code == fuse.OK && out.NodeId != 0 {
		a.f.PinUncached(out.NodeId)
	}
	return code
}

// ReadDir lists a directory that is nowhere else.
func (a uncachedView) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if a.f.View(in.NodeId) == layer.Cached {
		return fuse.OK
	}
	return a.raw.ReadDir(cancel, in, out)
}

// ReadDirPlus is ReadDir and a Lookup of each name.
func (a uncachedView) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if a.f.View(in.NodeId) == layer.Cached {
		return fuse.OK
	}
	return a.listPlus(in, out, func(e *layer.Entry) bool {
		a.f.PinUncached(e.ID)
		return true
	})
}
