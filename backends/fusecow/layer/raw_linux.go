package layer

import (
	"errors"
	"io/fs"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// raw answers the kernel. What it does not answer (open, create, flush, access,
// locks) the kernel asks once, hears that there is no such call, and then does
// without: a file is reached by its inode, and is made by MKNOD.
type raw struct {
	fuse.RawFileSystem
	f *FS
}

// Open is asked once: where there is no such call, any file is open, and its
// pages are kept.
func (r raw) Open(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status { return fuse.ENOSYS }

// Flush is asked once: a close writes nothing that was not written.
func (r raw) Flush(_ <-chan struct{}, _ *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

// forever is how long the kernel may keep what it was told: nobody else changes
// it.
const forever = 365 * 24 * time.Hour

// status is the number that the kernel is told for an error.
func status(err error) fuse.Status {
	var no unix.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.As(err, &no):
		return fuse.Status(no)
	case errors.Is(err, fs.ErrNotExist):
		return fuse.ENOENT
	}
	return fuse.EIO
}

// node is what the kernel means by a number that it was told.
func (r raw) node(id uint64) (*node, fuse.Status) {
	r.f.mu.RLock()
	defer r.f.mu.RUnlock()
	if n := r.f.nodes[id]; n != nil {
		return n, fuse.OK
	}
	return nil, fuse.Status(unix.ESTALE)
}

// fill tells what stat(2) will say. Holds mu, or n is nobody else's yet.
func (f *FS) fill(n *node, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino: n.ino, Size: uint64(n.size), Blocks: uint64(n.blocks), Mode: n.mode, Nlink: n.nlink,
		Owner: fuse.Owner{Uid: n.uid, Gid: n.gid}, Rdev: n.rdev, Blksize: 4096,
		Atime: uint64(n.atime.sec), Atimensec: n.atime.nsec,
		Mtime: uint64(n.mtime.sec), Mtimensec: n.mtime.nsec,
		Ctime: uint64(n.ctime.sec), Ctimensec: n.ctime.nsec,
	}
	switch {
	case n.kind() == unix.S_IFLNK && n.from == nil:
		out.Size = uint64(len(n.target))
	case !n.regular() || n.place == below:
	case n.place == nowhere:
		out.Blocks = 0
	default:
		if st, err := kernel.Lstat(f.layers[n.place].fd, sharded(n.id)); err == nil {
			out.Blocks = uint64(st.Blocks)
		}
	}
}

// entry tells the kernel of a node, which it knows from here on. Holds mu.
func (f *FS) entry(n *node, out *fuse.EntryOut) {
	n.lookups++
	out.NodeId, out.Generation = n.id, 1
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
	f.fill(n, &out.Attr)
}

// Lookup answers with the node of a name; that there is none is kept too.
func (r raw) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	f := r.f
	dir, code := r.node(h.NodeId)
	if code != fuse.OK {
		return code
	}
	f.mu.Lock()
	n, known := dir.entries[name]
	var err error
	if !known && dir.from != nil {
		f.mu.Unlock()
		var st kernel.Stat
		st, err = f.statBelow(dir.from, name)
		f.mu.Lock()
		// The kernel lets nobody change this name meanwhile.
		if err == nil {
			n = f.adopt(dir.from, name, &st)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	defer f.mu.Unlock()
	if err != nil {
		return status(err)
	}
	if n == nil {
		out.NodeId = 0
		out.SetEntryTimeout(forever)
		return fuse.OK
	}
	f.entry(n, out)
	return fuse.OK
}

func (r raw) Forget(id, times uint64) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.f.forget(id, times)
}

func (r raw) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	r.f.mu.RLock()
	defer r.f.mu.RUnlock()
	out.SetTimeout(forever)
	r.f.fill(n, &out.Attr)
	return fuse.OK
}

func (r raw) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f := r.f
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	if size, ok := in.GetSize(); ok {
		if err := f.truncate(n, int64(size)); err != nil {
			return status(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.change(n); err != nil {
		return status(err)
	}
	t := now()
	n.ctime = t
	if in.Valid&fuse.FATTR_SIZE != 0 {
		n.mtime = t
		lose := capability
		if in.Valid&fuse.FATTR_KILL_SUIDGID != 0 {
			lose = setID
		}
		n.lose(lose)
	}
	n.chown(in)
	if mode, ok := in.GetMode(); ok {
		n.chmod(mode)
	}
	n.utimes(in, t)
	out.SetTimeout(forever)
	f.fill(n, &out.Attr)
	return fuse.OK
}

// chown gives a changed node away, which takes what made its owner powerful.
func (n *node) chown(in *fuse.SetAttrIn) {
	uid, u := in.GetUID()
	gid, g := in.GetGID()
	if u {
		n.uid = uid
	}
	if g {
		n.gid = gid
	}
	if u || g {
		n.lose(setID)
	}
}

func (n *node) utimes(in *fuse.SetAttrIn, t stamp) {
	switch {
	case in.Valid&fuse.FATTR_ATIME_NOW != 0:
		n.atime = t
	case in.Valid&fuse.FATTR_ATIME != 0:
		n.atime = stamp{int64(in.Atime), in.Atimensec}
	}
	switch {
	case in.Valid&fuse.FATTR_MTIME_NOW != 0:
		n.mtime = t
	case in.Valid&fuse.FATTR_MTIME != 0:
		n.mtime = stamp{int64(in.Mtime), in.Mtimensec}
	}
}

func (r raw) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	n, code := r.node(h.NodeId)
	if code != fuse.OK {
		return nil, code
	}
	r.f.mu.RLock()
	target, changed := n.target, n.changed
	r.f.mu.RUnlock()
	if changed {
		return []byte(target), fuse.OK
	}
	err := r.f.at(n.from, func(dirfd int, name string) (err error) {
		target, err = readlink(dirfd, name)
		return err
	})
	return []byte(target), status(err)
}

// Read reads by inode.
func (r raw) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return nil, code
	}
	k, err := r.f.read(n, buf[:min(len(buf), int(in.Size))], int64(in.Offset))
	if err != nil {
		return nil, status(err)
	}
	return fuse.ReadResultData(buf[:k]), fuse.OK
}

func (r raw) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return 0, code
	}
	lose := nothing
	switch {
	case in.WriteFlags&fuse.WRITE_CACHE != 0: // a mapped page, which takes nothing from anybody
	case in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0:
		lose = setID
	default:
		lose = capability
	}
	k, err := r.f.write(n, data, int64(in.Offset), lose)
	return uint32(k), status(err)
}

func (r raw) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	at, err := r.f.seek(n, int64(in.Offset), int(in.Whence))
	out.Offset = uint64(at)
	return status(err)
}

func (r raw) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	// The kernel does not say whether set-id bits go, as it does with a write; and since
	// it says nothing of the caller either, it sees to that itself (Linux 6.0, file_modified).
	const nobody = 1<<32 - 1
	lose := capability
	if in.Uid != 0 && in.Uid != nobody {
		lose = setID
	}
	return status(r.f.fallocate(n, in.Mode, int64(in.Offset), int64(in.Length), lose))
}

func (r raw) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	return status(r.f.fsync(n))
}

func (r raw) FsyncDir(_ <-chan struct{}, _ *fuse.FsyncIn) fuse.Status {
	return status(r.f.commit(true))
}

func (r raw) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	var st unix.Statfs_t
	r.f.mu.RLock()
	d := r.f.layers[r.f.top()]
	r.f.mu.RUnlock()
	if err := unix.Fstatfs(d.fd, &st); err != nil {
		return status(err)
	}
	*out = fuse.StatfsOut{
		Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail, Files: st.Files, Ffree: st.Ffree,
		Bsize: uint32(st.Bsize), Frsize: uint32(st.Frsize), NameLen: 255,
	}
	return fuse.OK
}
