package mount

import (
	"errors"
	"io/fs"
	"math"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// raw answers the kernel's FUSE requests. To open, create, flush, access and lock requests it
// answers ENOSYS; the kernel then sends no more of them, reads and writes by inode, and
// creates files with MKNOD.
type raw struct {
	fuse.RawFileSystem
	*served
	pass *passthrough
	// generation is random, so that file handles of other servers are invalid here.
	generation uint64
}

// served is the filesystem that answers the FUSE requests of a [Server]. Each request holds mu for reading;
// to replace f, the filesystem, mu is locked for writing.
type served struct {
	mu sync.RWMutex
	f  *layer.FS
	// numberPrefix, unless empty, is the prefix of names that stand for inodes by number; see
	// [Server.refreshLengths].
	numberPrefix string
}

// Open answers the kernel's request to open a file. With passthrough, the kernel then reads the file
// directly. Without it Open answers ENOSYS once, and the kernel from then on opens files without a request
// and caches their pages.
func (r raw) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if r.pass.server == nil {
		return fuse.ENOSYS
	}
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	if id := r.pass.open(in.NodeId); id != 0 {
		out.OpenFlags, out.BackingID = fuse.FOPEN_PASSTHROUGH|fuse.FOPEN_NOFLUSH, id
	}
	return fuse.OK
}

func (r raw) Release(_ <-chan struct{}, in *fuse.ReleaseIn) { r.pass.close(in.NodeId) }

// Flush answers the kernel's request at the close of a file with ENOSYS, so that the kernel sends no more of
// them: there is nothing to write then.
func (r raw) Flush(_ <-chan struct{}, _ *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

// forever is the time for which the kernel may cache names and attributes of the mount, because only this
// server changes them.
const forever = 365 * 24 * time.Hour

// status converts an error of the filesystem to the error number with which a FUSE request of the kernel is
// answered.
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

func fill(out *fuse.Attr, a *layer.Attr) {
	*out = fuse.Attr{
		Ino: a.Ino, Size: a.Size, Blocks: a.Blocks, Mode: a.Mode, Nlink: a.Nlink,
		Owner: fuse.Owner{Uid: a.UID, Gid: a.GID}, Rdev: a.Rdev, Blksize: 4096,
		Atime: uint64(a.Atime.Sec()), Atimensec: a.Atime.Nsec,
		Mtime: uint64(a.Mtime.Sec()), Mtimensec: a.Mtime.Nsec,
		Ctime: uint64(a.Ctime.Sec()), Ctimensec: a.Ctime.Nsec,
	}
}

// entry fills the reply out to a FUSE lookup: for the inode e, or for a name that does not exist, which the
// kernel caches too. err is that of the lookup.
func (r raw) entry(out *fuse.EntryOut, e layer.Entry, err error) fuse.Status {
	if err != nil {
		return status(err)
	}
	out.NodeId = e.ID
	out.SetEntryTimeout(forever)
	if e.ID == 0 {
		return fuse.OK
	}
	out.Generation = r.generation + e.Generation
	out.SetAttrTimeout(forever)
	fill(&out.Attr, &e.Attr)
	return fuse.OK
}

func attr(out *fuse.AttrOut, a *layer.Attr, err error) fuse.Status {
	out.SetTimeout(forever)
	fill(&out.Attr, a)
	return status(err)
}

func (r raw) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e, ok, err := r.lookupByNumber(h.NodeId, name); ok {
		return r.entry(out, e, err)
	}
	e, err := r.f.Lookup(h.NodeId, name)
	return r.entry(out, e, err)
}

func (r raw) Forget(id, times uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	r.f.Forget(id, times)
}

func (r raw) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, err := r.f.Attr(in.NodeId)
	return attr(out, &a, err)
}

// sets maps the flags of the kernel's SETATTR request, which say what to change, to those of package layer.
var sets = [...]struct {
	theirs uint32
	ours   layer.Set
}{
	{fuse.FATTR_MODE, layer.SetMode},
	{fuse.FATTR_UID, layer.SetUID},
	{fuse.FATTR_GID, layer.SetGID},
	{fuse.FATTR_SIZE, layer.SetSize},
	{fuse.FATTR_ATIME, layer.SetAtime},
	{fuse.FATTR_MTIME, layer.SetMtime},
	{fuse.FATTR_ATIME_NOW, layer.SetAtimeNow},
	{fuse.FATTR_MTIME_NOW, layer.SetMtimeNow},
	{fuse.FATTR_KILL_SUIDGID, layer.KillSetID},
}

func (r raw) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := layer.Change{
		Size: int64(in.Size), Mode: in.Mode, UID: in.Uid, GID: in.Gid,
		Atime: logfile.At(int64(in.Atime), in.Atimensec),
		Mtime: logfile.At(int64(in.Mtime), in.Mtimensec),
	}
	for _, s := range &sets {
		if in.Valid&s.theirs != 0 {
			c.Set |= s.ours
		}
	}
	a, err := r.f.SetAttr(in.NodeId, &c)
	return attr(out, &a, err)
}

func (r raw) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	target, err := r.f.Readlink(h.NodeId)
	return []byte(target), status(err)
}

// Read answers a READ request for file content. It finds the file by inode number because files are not
// opened.
func (r raw) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n, err := r.f.Read(in.NodeId, buf[:min(len(buf), int(in.Size))], int64(in.Offset))
	if err != nil {
		return nil, status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (r raw) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	lose := layer.LoseNothing
	switch {
	case in.WriteFlags&fuse.WRITE_CACHE != 0: // writes back a mapped page, so privileges stay
	case in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0:
		lose = layer.LoseSetID
	default:
		lose = layer.LoseCapability
	}
	n, err := r.f.Write(in.NodeId, data, int64(in.Offset), lose)
	for lose == layer.LoseNothing && err == nil && n < len(data) { // the kernel does not repeat a short write of pages
		var more int
		more, err = r.f.Write(in.NodeId, data[n:], int64(in.Offset)+int64(n), lose)
		n += more
	}
	return uint32(n), status(err)
}

func (r raw) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	at, err := r.f.Seek(in.NodeId, int64(in.Offset), int(in.Whence))
	out.Offset = uint64(at)
	return status(err)
}

func (r raw) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.Fallocate(in.NodeId, in.Mode, int64(in.Offset), int64(in.Length), privilegesLost(in.Uid)))
}

// privilegesLost returns the privileges that a file loses to a request of the user uid that changes it
// without WRITE, such as FALLOCATE. These requests do not say whether to clear set-id bits. Where the kernel
// sends no user either, it clears them itself (file_modified, Linux 6.0).
func privilegesLost(uid uint32) layer.Privileges {
	const nobody = 1<<32 - 1
	if uid != 0 && uid != nobody {
		return layer.LoseSetID
	}
	return layer.LoseCapability
}

func (r raw) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	size := int64(min(in.Len, math.MaxInt32))
	n, err := r.f.Copy(in.NodeId, int64(in.OffIn), in.NodeIdOut, int64(in.OffOut), size, privilegesLost(in.Uid))
	return uint32(n), status(err)
}

// fsyncData is the flag FUSE_FSYNC_FDATASYNC of linux/fuse.h in an FSYNC request: it comes from fdatasync(2),
// which needs less metadata.
const fsyncData = 1

func (r raw) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.Fsync(in.NodeId, in.FsyncFlags&fsyncData != 0))
}

func (r raw) FsyncDir(_ <-chan struct{}, _ *fuse.FsyncIn) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.Commit(true))
}

func (r raw) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	st, err := r.f.Statfs()
	if err != nil {
		return status(err)
	}
	*out = fuse.StatfsOut{
		Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail, Files: st.Files, Ffree: st.Ffree,
		Bsize: uint32(st.Bsize), Frsize: uint32(st.Frsize), NameLen: unix.NAME_MAX,
	}
	return fuse.OK
}

// OpenDir answers the kernel's request to open a directory, and lets the kernel cache its list of names. If
// listing directories needs no state it answers ENOSYS once, and the kernel then opens directories without a
// request.
func (r raw) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.f.LowerOnly() {
		return fuse.ENOSYS
	}
	out.Fh = r.f.OpenDir(in.NodeId)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_CACHE_DIR
	return fuse.OK
}

func (r raw) ReleaseDir(in *fuse.ReleaseIn) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	r.f.CloseDir(in.Fh)
}

func dirEntry(e *vfs.Entry, next uint64) fuse.DirEntry {
	return fuse.DirEntry{Name: e.Name, Ino: e.Ino, Mode: uint32(e.Type) << 12, Off: next}
}

func (r raw) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.ReadDir(in.Fh, in.NodeId, in.Offset, func(_ layer.Dir, e vfs.Entry, next uint64) (bool, error) {
		return out.AddDirEntry(dirEntry(&e, next)), nil
	}))
}

// ReadDirPlus answers the kernel's READDIRPLUS: it lists a directory like ReadDir, and looks each name up, so
// that the kernel needs no LOOKUP requests.
func (r raw) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return r.listPlus(in, out, func(*layer.Entry) bool { return true })
}

// listPlus answers READDIRPLUS: it lists a directory with a Lookup of each name. It returns only the inodes
// for which shown returns true.
func (r raw) listPlus(in *fuse.ReadIn, out *fuse.DirEntryList, shown func(*layer.Entry) bool) fuse.Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return status(r.f.ReadDir(in.Fh, in.NodeId, in.Offset, func(d layer.Dir, e vfs.Entry, next uint64) (bool, error) {
		to := out.AddDirLookupEntry(dirEntry(&e, next))
		if to == nil || e.Name == "." || e.Name == ".." {
			return to != nil, nil
		}
		// The kernel looks up again a name that fails here, if it needs it.
		if found, err := d.Lookup(e.Name); err == nil && found.ID != 0 && shown(&found) {
			r.entry(to, found, nil)
		}
		return true, nil
	}))
}
