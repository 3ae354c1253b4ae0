package layer

import (
	"sync"
	"sync/atomic"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/backends/fusecow/layer/sparse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An inode is an entry of the inode table: one that the kernel has looked up, or that is dirty (a layer
// changed it), or both. FS.mu guards its fields, except those that never change. There may be a million,
// mostly clean ones of 128 bytes; a dirty one has a [dirtyState] of its own.
type inode struct {
	// id is the inode's FUSE node id: its inode number, except for the root.
	id uint64
	// lower is the lower inode that this one shows; nil for one that was created here or detached from the
	// lower. It never changes while the filesystem is mounted.
	lower *lower.Ref
	attr
	// lookups is the kernel's reference count: lookups answered, minus those forgotten.
	lookups uint64
	// contentLock is allocated at the first call of [inode.lock].
	contentLock atomic.Pointer[sync.RWMutex]
	*dirtyState // shared by all clean inodes; see [inode.ownState]
	// layer is the index of the layer with the content. It changes under both FS.mu and the content lock, so
	// holding either is enough to read it.
	layer logfile.Index
	// view is the view that shows the inode, see [FS.View].
	view View
	// changed is set if the inode is dirty in some layer, so that this table, not the lower,
	// has its attributes.
	changed bool
}

// dirtyState is the state that only a dirty inode needs, one that differs from the lower. It is separate
// because most inodes are clean and must stay small.
type dirtyState struct {
	// logged is set if a log records the inode. frame is the first log frame that records the
	// present layer and sources of the content, or 0 if none does yet.
	logged bool
	frame  int64
	// lookedUp is the change time of the lower inode when the kernel looked it up; zero after a restart.
	lookedUp logfile.Time
	// target is the target of a symbolic link. xattrs are all extended attributes.
	target string
	xattrs map[string]string
	// entries are the names of a directory that differ from its lower directory. A nil inode is a whiteout.
	entries map[string]*inode
	// recordedIn is the index of the topmost layer whose log has, or is about to have, a record of the inode.
	recordedIn logfile.Index
	// charged is the number of bytes that the content counts for in its layer. preallocated is
	// set if space beyond the end of the file was requested; that space counts too.
	charged      int64
	preallocated bool
	// sparse is nil if the content is one whole file.
	sparse *sparse.Upper
}

// cleanState is the [dirtyState] that all clean inodes (changed by no layer) share. It is never written to.
var cleanState = &dirtyState{recordedIn: logfile.NoContent}

// ownState gives the inode n, which shared that of all clean ones, a writable dirtyState. It returns n.
func (n *inode) ownState() *inode {
	if n.dirtyState == cleanState {
		n.dirtyState = &dirtyState{recordedIn: logfile.NoContent}
	}
	return n
}

// lock returns the content lock of n. Copying up and a change of the size hold it for writing; reads and
// writes of the content hold it for reading. It is taken before FS.mu.
func (n *inode) lock() *sync.RWMutex {
	if l := n.contentLock.Load(); l != nil {
		return l
	}
	n.contentLock.CompareAndSwap(nil, &sync.RWMutex{})
	return n.contentLock.Load()
}

// attr holds the attributes of an inode that stat(2) returns, in the form of the inode table.
type attr struct {
	ino                 uint64
	size                int64
	mode, uid, gid      uint32
	nlink, rdev         uint32
	atime, mtime, ctime logfile.Time
	// blocks is the allocated size of content in the lower, in blocks of 512 bytes.
	blocks int64
}

// record returns the record, for the log of the top layer, of the present state of the inode n.
func (n *inode) record() logfile.Inode {
	r := logfile.Inode{
		ID: n.id, Mode: n.mode, UID: n.uid, GID: n.gid, Nlink: n.nlink, Rdev: n.rdev,
		Size: n.size, Blocks: n.blocks, Layer: n.layer, Atime: n.atime, Mtime: n.mtime, Ctime: n.ctime,
		Target: n.target, Xattrs: n.xattrs,
	}
	if n.layer >= 0 {
		r.Blocks = n.charged / 512
	}
	if n.lower != nil {
		r.LowerPath, r.Lower = n.lower.Path(), n.lower.Identity
	}
	return r
}

// setRecord sets the state of n from r, a record of a layer's log, except its numbers and its lower inode.
// The caller has called ownState.
func (n *inode) setRecord(r *logfile.Inode) {
	n.attr = attr{
		ino: n.ino, size: r.Size, mode: r.Mode, uid: r.UID, gid: r.GID, nlink: r.Nlink, rdev: r.Rdev,
		atime: r.Atime, mtime: r.Mtime, ctime: r.Ctime,
	}
	n.layer, n.target, n.xattrs, n.sparse = r.Layer, r.Target, r.Xattrs, nil
	n.setBlocks(r.Blocks)
}

// setBlocks sets the allocated size of n's content, in blocks of 512 bytes, and the bytes that a quota counts
// for it in a layer. The caller has called ownState.
func (n *inode) setBlocks(blocks int64) {
	n.charged, n.blocks = 0, blocks
	if n.layer >= 0 {
		n.charged, n.blocks = blocks*512, 0
	}
}

// shown returns the state of the lower file of n that the kernel caches, for [lower.Tree.ReadBefore].
func (n *inode) shown() (st vfs.Stat) {
	if n.lower == nil {
		return st
	}
	ctime := n.lookedUp
	if st.Ino, st.Size = n.lower.Ino, n.size; !n.changed {
		st.Mode, st.UID, st.GID, ctime = n.mode, n.uid, n.gid, n.ctime
		st.MTime = vfs.Timestamp{Sec: n.mtime.Sec(), Nsec: n.mtime.Nsec}
	}
	st.CTime = vfs.Timestamp{Sec: ctime.Sec(), Nsec: ctime.Nsec}
	return st
}

func (n *inode) kind() uint32  { return n.mode & unix.S_IFMT }
func (n *inode) isDir() bool   { return n.kind() == unix.S_IFDIR }
func (n *inode) regular() bool { return n.kind() == unix.S_IFREG }

// attrOf converts the attributes of a lower inode for the inode table. The caller sets the inode number.
func attrOf(st *vfs.Stat) attr {
	return attr{
		size: st.Size, mode: st.Mode, uid: st.UID, gid: st.GID, nlink: st.Nlink,
		rdev:  uint32(st.Rdev),
		atime: logfile.At(st.ATime.Sec, st.ATime.Nsec),
		mtime: logfile.At(st.MTime.Sec, st.MTime.Nsec),
		ctime: logfile.At(st.CTime.Sec, st.CTime.Nsec), blocks: st.Blocks,
	}
}
