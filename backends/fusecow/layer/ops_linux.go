package layer

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// These are the questions of a kernel, which knows nodes by the numbers that it was
// told and holds until it forgets them. Errors are those of files and always hold a
// unix.Errno, see [Errno].

// RootID is the number of the root, which nobody has to be told.
const RootID = rootID

// Errno is the number that a kernel is told for an error of this package, 0 for nil.
func Errno(err error) unix.Errno {
	var no unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &no):
		return no
	case errors.Is(err, fs.ErrNotExist):
		return unix.ENOENT
	}
	return unix.EIO
}

// Attr is what stat(2) tells of a node. Blocks are of 512 bytes.
type Attr struct {
	Ino, Size, Blocks   uint64
	Mode, UID, GID      uint32
	Nlink, Rdev         uint32
	Atime, Mtime, Ctime Time
}

// An Entry is a node that the kernel is told of, and holds until [FS.Forget].
type Entry struct {
	ID uint64 // 0: there is none
	// Again is how often it has come back since the kernel removed it, a directory, while it was in
	// use: another inode with the same number each time.
	Again uint64
	Attr
}

// node is what the kernel means by a number that it was told.
func (f *FS) node(id uint64) (*node, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if n := f.nodes[id]; n != nil {
		return n, nil
	}
	return nil, unix.ESTALE
}

// tell is what stat(2) will say. Holds mu, or n is nobody else's yet.
func (f *FS) tell(n *node) Attr {
	a := Attr{
		Ino: n.ino, Size: uint64(n.size), Blocks: uint64(n.blocks), Mode: n.mode, UID: n.uid, GID: n.gid,
		Nlink: n.nlink, Rdev: n.rdev, Atime: n.atime, Mtime: n.mtime, Ctime: n.ctime,
	}
	switch {
	case n.kind() == unix.S_IFLNK && n.from == nil:
		a.Size = uint64(len(n.target))
	case !n.regular() || n.place == below:
	case n.place == nowhere:
		a.Blocks = 0
	default:
		if st, err := kernel.Lstat(f.layers[n.place].fd, sharded(n.id)); err == nil { // not n.held, which ZFS tells too early
			a.Blocks = uint64(st.Blocks)
		}
		if n.parts != nil {
			for _, s := range n.parts.beneath {
				a.Blocks += uint64(s.blocks)
			}
			a.Blocks = min(a.Blocks, uint64(f.up(n.size)/512))
		}
	}
	return a
}

// entry tells the kernel of a node, which it knows from here on. Holds mu.
func (f *FS) entry(n *node) Entry {
	n.lookups++
	return Entry{n.id, f.again[n.id], f.tell(n)}
}

// Lookup answers with the node of a name, or that there is none.
func (f *FS) Lookup(id uint64, name string) (Entry, error) {
	if len(name) > longest {
		return Entry{}, unix.ENAMETOOLONG
	}
	dir, err := f.node(id)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	n, known := dir.entries[name]
	if !known && dir.showsBelow() {
		f.mu.Unlock()
		var st kernel.Stat
		st, err = f.statBelow(dir.from, name)
		f.mu.Lock()
		// The kernel lets nobody change this name meanwhile.
		if err == nil {
			n = f.adopt(dir.from, name, &st)
		} else if errors.Is(err, fs.ErrNotExist) || f.lost(dir, err) {
			err = nil
		}
	}
	defer f.mu.Unlock()
	if err == nil && n == nil && dir.nlink == 0 { // not to be kept: it may come back with the name
		err = unix.ENOENT
	}
	if err != nil || n == nil {
		return Entry{}, err
	}
	return f.entry(n), nil
}

// Again answers with a node that the kernel was told of, and tells of it once more.
func (f *FS) Again(id uint64) (Entry, error) {
	n, err := f.node(id)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entry(n), nil
}

// Forget lets go of a node that the kernel was told of so often.
func (f *FS) Forget(id, times uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(id, times)
}

// Attr is getattr.
func (f *FS) Attr(id uint64) (Attr, error) {
	n, err := f.node(id)
	if err != nil {
		return Attr{}, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.tell(n), nil
}

// A Change is one of attributes: of those that Set names.
type Change struct {
	Set            Set
	Size           int64
	Mode, UID, GID uint32
	Atime, Mtime   Time
}

// Set names the parts of a [Change].
type Set int

// What a change sets; the times, also to that of the change. KillSetID:
// with its size, the file loses what made its owner powerful.
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

// SetAttr is chmod(2), chown(2), utimensat(2) and truncate(2), any of them at once.
func (f *FS) SetAttr(id uint64, c *Change) (Attr, error) {
	n, err := f.node(id)
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
	if err := f.change(n); err != nil {
		return Attr{}, err
	}
	t := now()
	n.ctime = t
	if c.Set&SetSize != 0 {
		n.mtime = t
		lose := LoseCapability
		if c.Set&KillSetID != 0 {
			lose = LoseSetID
		}
		n.lose(lose)
	}
	n.chown(c)
	if c.Set&SetMode != 0 {
		n.chmod(c.Mode)
	}
	n.utimes(c, t)
	return f.tell(n), nil
}

// chown gives a changed node away, which takes what made its owner powerful.
func (n *node) chown(c *Change) {
	if c.Set&SetUID != 0 {
		n.uid = c.UID
	}
	if c.Set&SetGID != 0 {
		n.gid = c.GID
	}
	if c.Set&(SetUID|SetGID) != 0 {
		n.lose(LoseSetID)
	}
}

func (n *node) utimes(c *Change, t Time) {
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

// Readlink is where a symbolic link leads.
func (f *FS) Readlink(id uint64) (target string, err error) {
	n, err := f.node(id)
	if err != nil {
		return "", err
	}
	f.mu.RLock()
	target, changed := n.target, n.changed
	f.mu.RUnlock()
	if changed {
		return target, nil
	}
	err = f.at(n.from, func(dirfd int, name string) (err error) {
		target, err = readlink(dirfd, name)
		return err
	})
	return target, err
}

// Read fills buf from an offset, as far as the file goes.
func (f *FS) Read(id uint64, buf []byte, off int64) (int, error) {
	n, err := f.node(id)
	if err != nil {
		return 0, err
	}
	done, err := f.read(n, buf, off)
	return done, f.mayBeStale(n, err)
}

// OnStale has the filesystem call tell too, in a goroutine, where the tree below has another
// file by now than the one that the kernel knows by a name.
func (f *FS) OnStale(tell func(dir uint64, name string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale = append(f.stale, tell)
}

// mayBeStale tells of a node that has gone from the tree below, so that the name leads
// to what is there now when it is opened again. It answers with err.
func (f *FS) mayBeStale(n *node, err error) error {
	if !errors.Is(err, unix.ESTALE) || n.from == nil || n.from.dir == nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range append([]*origin{n.from}, f.aliases[n]...) {
		if dir, wrong := f.nodeOf(o.dir); wrong == nil {
			for _, tell := range f.stale {
				go tell(dir.id, o.name)
			}
		}
	}
	return err
}

// Write puts data at an offset. It may write less than all, and say no more.
func (f *FS) Write(id uint64, data []byte, off int64, lose Privileges) (int, error) {
	n, err := f.node(id)
	if err != nil {
		return 0, err
	}
	done, err := f.write(n, data, off, lose)
	return done, f.mayBeStale(n, err)
}

// Seek is lseek(2) with SEEK_DATA or SEEK_HOLE.
func (f *FS) Seek(id uint64, off int64, whence int) (int64, error) {
	n, err := f.node(id)
	if err != nil {
		return 0, err
	}
	return f.seek(n, off, whence)
}

// Fallocate is fallocate(2).
func (f *FS) Fallocate(id uint64, mode uint32, off, size int64, lose Privileges) error {
	n, err := f.node(id)
	if err != nil {
		return err
	}
	return f.fallocate(n, mode, off, size, lose)
}

// Fsync puts the content of a node, and all names and attributes, on stable storage; with
// data, as fdatasync(2), no more than it takes to read the content again.
func (f *FS) Fsync(id uint64, data bool) error {
	n, err := f.node(id)
	if err != nil || f.readOnly {
		return err
	}
	return f.fsync(n, data)
}

// Commit tells the log of all that was done to names and attributes; with sync it is
// on stable storage then.
func (f *FS) Commit(sync bool) error { return f.commit(sync) }

// Statfs tells of the space that the top layer has, or is left of its quota.
func (f *FS) Statfs() (st unix.Statfs_t, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	dir := f.lower
	if len(f.layers) > 0 {
		dir = f.layers[f.top()].fd
	}
	if err := unix.Fstatfs(dir, &st); err != nil || f.quota == nil {
		return st, err
	}
	f.quota.limit(&st)
	return st, nil
}
