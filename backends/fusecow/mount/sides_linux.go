package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
)

// What an overlay asks of the tree beneath it is mostly for nothing: each regular file for an attribute that makes
// it one without content (ovl_check_metacopy_xattr in fs/overlayfs/util.c), and, where the kernel may read files
// by itself, each one that is opened for that. A filesystem can be without either call, but only for all of its files. So there are two:
// common has what is small and has no attributes, which is nearly everything, and answers to neither call; apart,
// beneath it, has the rest, and all directories of common, as empty ones.

// commonSide shows what is not [layer.FS.Apart].
type commonSide struct{ raw }

// whiteout is the number of a device that stands for every name that there is not, so that an overlay does not look for it on the other side.
const whiteout = 1 << 63

// Lookup has no name for what is apart.
func (c commonSide) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, err := c.f.Lookup(h.NodeId, name)
	switch {
	case err != nil:
	case e.ID == 0:
		e = layer.Entry{ID: whiteout, Attr: layer.Attr{Ino: whiteout, Mode: unix.S_IFCHR, Nlink: 1}}
	case c.f.Apart(h.NodeId, e.ID):
		c.f.Forget(e.ID, 1)
		e = layer.Entry{}
	}
	return c.entry(out, e, err)
}

// GetAttr knows the whiteout too.
func (c commonSide) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == whiteout {
		return attr(out, &layer.Attr{Ino: whiteout, Mode: unix.S_IFCHR, Nlink: 1}, nil)
	}
	return c.raw.GetAttr(cancel, in, out)
}

// ReadDirPlus tells of no node that is apart: a name of it will be looked up.
func (c commonSide) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return c.listPlus(in, out, func(e *layer.Entry) bool {
		if !c.f.Apart(in.NodeId, e.ID) {
			return true
		}
		c.f.Forget(e.ID, 1)
		return false
	})
}

// Open is asked once, and then every file is open.
func (commonSide) Open(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return fuse.ENOSYS
}

// GetXAttr is asked once, and then no file has any. Who looks through the overlay hears EOPNOTSUPP, as of a
// filesystem without attributes, where one that has some would say ENODATA.
func (commonSide) GetXAttr(_ <-chan struct{}, _ *fuse.InHeader, _ string, _ []byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// ListXAttr has none to tell of.
func (commonSide) ListXAttr(_ <-chan struct{}, _ *fuse.InHeader, _ []byte) (uint32, fuse.Status) {
	return 0, fuse.OK
}

// apartSide shows what is apart, and whatever else it is asked for.
type apartSide struct{ raw }

// Lookup decides on which side what it finds is, for what lies in it.
func (a apartSide) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	code := a.raw.Lookup(cancel, h, name, out)
	if code == fuse.OK && out.NodeId != 0 {
		a.f.Apart(h.NodeId, out.NodeId)
	}
	return code
}

// ReadDir lists what is in a directory that is apart; of others the other side has a list.
func (a apartSide) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if !a.f.Apart(in.NodeId, in.NodeId) {
		return fuse.OK
	}
	return a.raw.ReadDir(cancel, in, out)
}

// ReadDirPlus is ReadDir and a Lookup of each name.
func (a apartSide) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if !a.f.Apart(in.NodeId, in.NodeId) {
		return fuse.OK
	}
	return a.listPlus(in, out, func(e *layer.Entry) bool { a.f.Apart(in.NodeId, e.ID); return true })
}
