package layer

import (
	"errors"
	"io/fs"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// The methods in this file answer the requests of a kernel, which refers to inodes by the ids that it got from
// Lookup and releases with Forget. Their errors wrap a unix.Errno or fs.ErrNotExist.

// RootID is the FUSE node id of the root directory, which the kernel knows without a Lookup.
const RootID = 1

// Attr holds the attributes of an inode as in stat(2). Blocks have 512 bytes.
type Attr struct {
	Ino, Size, Blocks   uint64
	Mode, UID, GID      uint32
	Nlink, Rdev         uint32
	Atime, Mtime, Ctime logfile.Time
}

// An Entry is the reply to a lookup: an inode that the kernel may refer to until [FS.Forget].
type Entry struct {
	ID uint64 // 0 if there is no such entry
	// Generation distinguishes inodes that used the same number: it counts how often a
	// directory that the kernel removed but still refers to came back under its number.
	Generation uint64
	Attr
}

// inodeByID returns the inode to which the kernel refers by the FUSE node id, or ESTALE if there is none.
func (f *FS) inodeByID(id uint64) (*inode, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if n := f.inodes[id]; n != nil {
		return n, nil
	}
	return nil, unix.ESTALE
}

// stat returns the attributes of the inode n. The caller holds mu, unless no other goroutine knows n.
func (f *FS) stat(n *inode) Attr {
	a := Attr{
		Ino: n.ino, Size: uint64(n.size), Blocks: uint64(n.blocks), Mode: n.mode, UID: n.uid, GID: n.gid,
		Nlink: n.nlink, Rdev: n.rdev, Atime: n.atime, Mtime: n.mtime, Ctime: n.ctime,
	}
	switch {
	case n.kind() == unix.S_IFLNK && n.lower == nil:
		a.Size = uint64(len(n.target))
	case !n.regular() || n.layer == logfile.InLower:
	case n.layer == logfile.NoContent:
		a.Blocks = 0
	default:
		// Not n.charged: ZFS reported those blocks too early.
		if st, err := vfs.Lstat(f.layers[n.layer].FD, logfile.ContentPath(n.id)); err == nil {
			a.Blocks = uint64(st.Blocks)
		}
		if n.sparse != nil {
			for _, s := range n.sparse.Sources {
				a.Blocks += uint64(s.Blocks)
			}
			a.Blocks = min(a.Blocks, uint64(f.alignUp(n.size)/512))
		}
	}
	return a
}

// entry returns the inode n as an [Entry], and counts one more kernel reference to it. The caller holds mu.
func (f *FS) entry(n *inode) Entry {
	n.lookups++
	return Entry{n.id, f.generations[n.id], f.stat(n)}
}

// Lookup returns the inode called name in the directory id, and counts one kernel reference; ID 0 means none.
func (f *FS) Lookup(id uint64, name string) (Entry, error) {
	if len(name) > unix.NAME_MAX {
		return Entry{}, unix.ENAMETOOLONG
	}
	dir, err := f.inodeByID(id)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	n, known := dir.entries[name]
	if !known && dir.showsLower() {
		f.mu.Unlock()
		var st vfs.Stat
		st, err = f.lower.Stat(dir.lower, name)
		f.mu.Lock()
		// The kernel keeps this name locked meanwhile.
		if err == nil {
			n = f.lowerInode(dir.lower, name, &st)
		} else if errors.Is(err, fs.ErrNotExist) || f.lowerGone(dir, err) {
			err = nil
		}
	}
	defer f.mu.Unlock()
	if err == nil && n == nil && dir.nlink == 0 { // an error, so that the kernel caches nothing: the directory may come back with the name
		err = unix.ENOENT
	}
	if err != nil || n == nil {
		return Entry{}, err
	}
	return f.entry(n), nil
}

// Relookup returns the inode id, which the kernel knows, as an Entry, and counts one more kernel reference.
func (f *FS) Relookup(id uint64) (Entry, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entry(n), nil
}

// Forget subtracts times from the count of kernel references to the inode id, and may then free the inode.
func (f *FS) Forget(id, times uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.inodes[id]
	if n == nil || n == f.root {
		return
	}
	n.lookups -= min(times, n.lookups)
	f.dropUnused(n)
}

// Attr returns the attributes of the inode id, for the kernel's stat(2).
func (f *FS) Attr(id uint64) (Attr, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return Attr{}, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.stat(n), nil
}

// A Change holds new attribute values for [FS.SetAttr]; its Set says which of them to apply.
type Change struct {
	Set            Set
	Size           int64
	Mode, UID, GID uint32
	Atime, Mtime   logfile.Time
}

// A Set is a bit set that says which attributes of an inode a [Change] changes.
type Set int

// Bits of a [Set]. SetAtimeNow and SetMtimeNow mean the present; KillSetID with SetSize clears set-id bits.
const (
	SetMode Set = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow
	SetMtimeNow
	KillSetID
)

// SetAttr changes the attributes of the inode id that c holds, and returns the new attributes.
func (f *FS) SetAttr(id uint64, c *Change) (Attr, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return Attr{}, err
	}
	if c.Set&SetSize != 0 {
		if err := f.truncate(n, c.Size); err != nil {
			return Attr{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.makeDirty(n); err != nil {
		return Attr{}, err
	}
	t := logfile.Now()
	n.ctime = t
	if c.Set&SetSize != 0 {
		n.mtime = t
		lose := LoseCapability
		if c.Set&KillSetID != 0 {
			lose = LoseSetID
		}
		n.strip(lose)
	}
	n.chown(c)
	if c.Set&SetMode != 0 {
		n.chmod(c.Mode)
	}
	n.utimes(c, t)
	return f.stat(n), nil
}

// chown sets the owner of a dirty inode to that of c, and strips set-id bits and capabilities.
func (n *inode) chown(c *Change) {
	if c.Set&SetUID != 0 {
		n.uid = c.UID
	}
	if c.Set&SetGID != 0 {
		n.gid = c.GID
	}
	if c.Set&(SetUID|SetGID) != 0 {
		n.strip(LoseSetID)
	}
}

func (n *inode) utimes(c *Change, t logfile.Time) {
	switch {
	case c.Set&SetAtimeNow != 0:
		n.atime = t
	case c.Set&SetAtime != 0:
		n.atime = c.Atime
	}
	switch {
	case c.Set&SetMtimeNow != 0:
		n.mtime = t
	case c.Set&SetMtime != 0:
		n.mtime = c.Mtime
	}
}

// Readlink returns the target of the symbolic link with inode id, for readlink(2).
func (f *FS) Readlink(id uint64) (target string, err error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return "", err
	}
	f.mu.RLock()
	target, changed := n.target, n.changed
	f.mu.RUnlock()
	if changed {
		return target, nil
	}
	return f.lower.Readlink(n.lower)
}

// OnStale registers notify, by which the server makes the kernel look a name up again. notify runs in its own
// goroutine for each name that the kernel knows and whose lower file was replaced by another one.
func (f *FS) OnStale(notify func(dir uint64, name string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onStale = append(f.onStale, notify)
}

// notifyStale returns err. For ESTALE it makes the kernel drop the names of n, to look them up anew later.
func (f *FS) notifyStale(n *inode, err error) error {
	if !errors.Is(err, unix.ESTALE) || n.lower == nil || n.lower.Dir == nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range append([]*lower.Ref{n.lower}, f.aliases[n]...) {
		if dir, wrong := f.dirInode(o.Dir); wrong == nil && !f.lower.Fixes(o.Dir, o.Name) {
			for _, notify := range f.onStale {
				go notify(dir.id, o.Name)
			}
		}
	}
	return err
}

// Statfs returns the space of the filesystem that stores the top layer, limited by the quota.
func (f *FS) Statfs() (st unix.Statfs_t, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	dir := f.lower.RootFD()
	if len(f.layers) > 0 {
		dir = f.layers[f.top()].FD
	}
	if err := unix.Fstatfs(dir, &st); err != nil || f.quota == nil {
		return st, err
	}
	f.quota.ClampStatfs(&st)
	return st, nil
}
