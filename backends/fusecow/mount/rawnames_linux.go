package mount

import (
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
)

// make creates in a directory the inode that what describes, owned by the requesting process, and fills the
// reply out with its attributes. h is the header of the request.
func (r raw) make(h *fuse.InHeader, what layer.New, out *fuse.EntryOut) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := room(); err != nil {
		return status(err)
	}
	what.UID, what.GID = h.Uid, h.Gid
	e, err := r.f.Make(h.NodeId, what)
	if errors.Is(err, unix.EEXIST) {
		// The name appeared in the lower after the kernel had looked it up. After ESTALE the kernel looks it up again,
		// and open(2) then opens that file, unless it has O_EXCL.
		err = unix.ESTALE
	}
	return r.entry(out, e, err)
}

func (r raw) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return r.make(&in.InHeader, layer.New{Name: name, Mode: in.Mode, Umask: in.Umask, Rdev: in.Rdev}, out)
}

func (r raw) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return r.make(&in.InHeader, layer.New{Name: name, Mode: unix.S_IFDIR | in.Mode&0o7777, Umask: in.Umask}, out)
}

func (r raw) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return r.make(h, layer.New{Name: name, Mode: unix.S_IFLNK | 0o777, Target: target}, out)
}

// Tmpfile answers the kernel's request for a file without a name (open(2) with O_TMPFILE). Link may give the
// file a name later.
func (r raw) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return r.make(&in.InHeader, layer.New{Mode: unix.S_IFREG | in.Mode&0o7777, Umask: in.Umask}, &out.EntryOut)
}

func (r raw) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := room(); err != nil {
		return status(err)
	}
	e, err := r.f.Link(in.Oldnodeid, in.NodeId, name)
	return r.entry(out, e, err)
}

func (r raw) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.Remove(h.NodeId, name, false))
}

func (r raw) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.Remove(h.NodeId, name, true))
}

func (r raw) Rename(_ <-chan struct{}, in *fuse.RenameIn, name, toName string) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.Rename(in.NodeId, name, in.Newdir, toName, in.Flags))
}

func (r raw) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	value, err := r.f.Xattr(h.NodeId, name)
	if err != nil {
		return 0, status(err)
	}
	return answer(value, dest)
}

func (r raw) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names, err := r.f.Xattrs(h.NodeId)
	if err != nil {
		return 0, status(err)
	}
	var all strings.Builder
	for _, name := range names {
		all.WriteString(name)
		all.WriteByte(0)
	}
	return answer(all.String(), dest)
}

// answer copies the value of an extended attribute into the reply dest, and returns its size. If dest is
// empty it only returns the size.
func answer(value string, dest []byte) (uint32, fuse.Status) {
	if len(dest) > 0 && len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	copy(dest, value)
	return uint32(len(value)), fuse.OK
}

func (r raw) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := room(); err != nil {
		return status(err)
	}
	drop := in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0
	return status(r.f.SetXattr(in.NodeId, name, string(value), in.Flags, drop))
}

func (r raw) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.RemoveXattr(h.NodeId, name))
}
