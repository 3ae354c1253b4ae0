package layer

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A node is an inode: one that the kernel knows, or that has been changed, or
// both. Its fields are guarded by FS.mu, but where they never change. There may be a
// million of them, of which most have only been looked at: of these it takes 128 bytes,
// what was done to the others is elsewhere.
type node struct {
	// id is what the kernel calls it: the inode number, but for the root.
	id uint64
	// from is where the tree below has it; nil when it was made above, or was raised and
	// is nothing of the tree below any more. While anything is mounted it never changes.
	from *origin
	attr
	// lookups is how often the kernel was told of it and has not yet forgotten.
	lookups uint64
	// content is where the lock of its content is, once that was asked for; see [node.lock].
	content atomic.Pointer[sync.RWMutex]
	*deeds  // see [node.own]
	// place is where the content is; it changes under FS.mu and the lock of the content,
	// so that either is enough to read it.
	place place
	// side is which of two filesystems shows it, see [FS.Side].
	side Side
	// changed: the table holds the truth about it, and the log will.
	changed bool
}

// deeds are what there is to know of a node that was changed.
type deeds struct {
	// logged: the log has heard of it. Frame is the first one that tells where its
	// content is, and up to where below, or 0: none does yet.
	logged bool
	frame  int64
	// target is where a symbolic link leads; xattrs are all there are.
	target string
	xattrs map[string]string
	// entries are the names of a directory that differ from those of from; nil
	// for one that is gone.
	entries map[string]*node
	// told is the layer whose log tells of it, or is about to: the topmost of them.
	told place
	// held is what its content counts for in the layer that has it, in bytes. Ahead:
	// space beyond its end was asked for, and counts too.
	held  int64
	ahead bool
	// parts are what else its content is made of; nil: nothing.
	parts *parts
}

// none are those of all nodes that have not been changed: nobody writes to them.
var none = &deeds{told: nowhere}

// own gives a node deeds that may be written to, before it is changed.
func (n *node) own() *node {
	if n.deeds == none {
		n.deeds = &deeds{told: nowhere}
	}
	return n
}

// lock is held for writing while the content of a node moves from one place to another or
// is cut, for reading while it is read or written. It is taken before FS.mu.
func (n *node) lock() *sync.RWMutex {
	if l := n.content.Load(); l != nil {
		return l
	}
	n.content.CompareAndSwap(nil, &sync.RWMutex{})
	return n.content.Load()
}

// attr is what stat(2) tells.
type attr struct {
	ino                 uint64
	size                int64
	mode, uid, gid      uint32
	nlink, rdev         uint32
	atime, mtime, ctime Time
	// blocks of content in the tree below, of 512 bytes.
	blocks int64
}

// A Time is in seconds since 1970 and nanoseconds of the last one, in parts so that any
// time of a file fits into 12 bytes.
type Time struct {
	high int32
	low  uint32
	Nsec uint32
}

// At is that many seconds and nanoseconds since 1970.
func At(sec int64, nsec uint32) Time { return Time{int32(sec >> 32), uint32(sec), nsec} }

// Sec is the whole seconds since 1970.
func (t Time) Sec() int64 { return int64(t.high)<<32 | int64(t.low) }

func now() Time {
	t := time.Now()
	return At(t.Unix(), uint32(t.Nanosecond()))
}

// A place is where the content of a regular file is: in the layer of that
// index, or one of these.
type place int32

const (
	below   place = -1 // in the tree below
	nowhere place = -2 // it has none: all zeros
)

// An origin is a node of the tree below. It never changes.
type origin struct {
	dir  *origin // nil for the root
	name string
	identity
}

// identity tells a node of the tree below from another one that has its name or
// its number later.
type identity struct {
	ino  uint64
	dev  uint32 // which is all that Linux has; 0: that of the root
	born Time
}

func (f *FS) identityOf(st *kernel.Stat) identity {
	return f.home(identity{st.Ino, uint32(st.Dev), At(st.BTime.Sec, st.BTime.Nsec)})
}

// home leaves out the device that the root is on: the kernel makes one up for many a
// filesystem (btrfs, ZFS, tmpfs), another each time it is mounted, and a log outlives that.
func (f *FS) home(id identity) identity {
	if id.dev == f.dev {
		id.dev = 0
	}
	return id
}

// isAt reports whether it is that of a name in a directory.
func (o *origin) isAt(dir *origin, name string) bool {
	return o.dir != nil && o.name == name && (o.dir == dir || o.dir.path() == dir.path())
}

// path is relative to the root of the tree below, "." for that itself.
func (o *origin) path() string {
	if o.dir == nil {
		return "."
	}
	var names []string
	for ; o.dir != nil; o = o.dir {
		names = append(names, o.name)
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		b.WriteString(names[i])
		if i > 0 {
			b.WriteByte('/')
		}
	}
	return b.String()
}

// takes notes how many blocks of 512 bytes the content of a node has where that is: in a layer they count. Its
// deeds are its own.
func (n *node) takes(blocks int64) {
	n.held, n.blocks = 0, blocks
	if n.place >= 0 {
		n.held, n.blocks = blocks*512, 0
	}
}

func (n *node) kind() uint32  { return n.mode & unix.S_IFMT }
func (n *node) isDir() bool   { return n.kind() == unix.S_IFDIR }
func (n *node) regular() bool { return n.kind() == unix.S_IFREG }

// attrOf takes over what the tree below says; ino is left to the caller.
func attrOf(st *kernel.Stat) attr {
	return attr{
		size: st.Size, mode: st.Mode, uid: st.UID, gid: st.GID, nlink: st.Nlink,
		rdev:  uint32(st.Rdev),
		atime: At(st.ATime.Sec, st.ATime.Nsec),
		mtime: At(st.MTime.Sec, st.MTime.Nsec),
		ctime: At(st.CTime.Sec, st.CTime.Nsec),

		blocks: st.Blocks,
	}
}
