package layer

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// add makes a node for a caller and tells the kernel of it.
func (r raw) add(h *fuse.InHeader, name string, mode, umask uint32, finish func(*node), out *fuse.EntryOut) fuse.Status {
	f := r.f
	dir, code := r.node(h.NodeId)
	if code != fuse.OK {
		return code
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.make(dir, name, mode, h.Uid, h.Gid, umask)
	if err != nil {
		return status(err)
	}
	finish(n)
	f.entry(n, out)
	return fuse.OK
}

func (r raw) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return r.add(&in.InHeader, name, in.Mode, in.Umask, func(n *node) { n.rdev = in.Rdev }, out)
}

func (r raw) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return r.add(&in.InHeader, name, unix.S_IFDIR|in.Mode&0o7777, in.Umask, func(*node) {}, out)
}

func (r raw) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return r.add(h, name, unix.S_IFLNK|0o777, 0, func(n *node) { n.target = target }, out)
}

// Tmpfile makes a file that has no name, and may be given one by Link.
func (r raw) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return r.add(&in.InHeader, "", unix.S_IFREG|in.Mode&0o7777, in.Umask, func(*node) {}, &out.EntryOut)
}

func (r raw) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	n, code := r.node(in.Oldnodeid)
	if code != fuse.OK {
		return code
	}
	dir, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if err := r.f.link(n, dir, name); err != nil {
		return status(err)
	}
	r.f.entry(n, out)
	return fuse.OK
}

func (r raw) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return r.remove(h, name, false)
}

func (r raw) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return r.remove(h, name, true)
}

func (r raw) remove(h *fuse.InHeader, name string, rmdir bool) fuse.Status {
	dir, code := r.node(h.NodeId)
	if code != fuse.OK {
		return code
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	return status(r.f.unlink(dir, name, rmdir))
}

func (r raw) Rename(_ <-chan struct{}, in *fuse.RenameIn, name, toName string) fuse.Status {
	from, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	to, code := r.node(in.Newdir)
	if code != fuse.OK {
		return code
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	return status(r.f.rename(from, name, to, toName, in.Flags))
}

func (r raw) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	n, code := r.node(h.NodeId)
	if code != fuse.OK {
		return 0, code
	}
	value, err := r.f.xattr(n, name)
	if err != nil {
		return 0, status(err)
	}
	return answer(value, dest)
}

func (r raw) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	n, code := r.node(h.NodeId)
	if code != fuse.OK {
		return 0, code
	}
	names, err := r.f.xattrNames(n)
	if err != nil {
		return 0, status(err)
	}
	var all []byte
	for _, name := range names {
		all = append(append(all, name...), 0)
	}
	return answer(string(all), dest)
}

// answer copies a value to where there is room for it, or says how much it needs.
func answer(value string, dest []byte) (uint32, fuse.Status) {
	if len(dest) > 0 && len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	copy(dest, value)
	return uint32(len(value)), fuse.OK
}

func (r raw) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	drop := in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0
	return status(r.f.setXattr(n, name, string(value), in.Flags, drop))
}

func (r raw) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	n, code := r.node(h.NodeId)
	if code != fuse.OK {
		return code
	}
	return status(r.f.removeXattr(n, name))
}
