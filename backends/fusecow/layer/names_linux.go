package layer

import (
	"errors"
	"io/fs"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"golang.org/x/sys/unix"
)

// All methods in this file require mu, unless they say otherwise. They return bare errnos or errors that wrap
// one.

// lookup returns the inode called name in dir, from the layers or the lower, or nil if there is none.
func (f *FS) lookup(dir *inode, name string) (*inode, error) {
	if len(name) > unix.NAME_MAX { // the lower's limit; the kernel has none for FUSE
		return nil, unix.ENAMETOOLONG
	}
	if n, ok := dir.entries[name]; ok {
		return n, nil
	}
	if !dir.showsLower() {
		return nil, nil
	}
	st, err := f.lower.Stat(dir.lower, name)
	if errors.Is(err, fs.ErrNotExist) || f.lowerGone(dir, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return f.lowerInode(dir.lower, name, &st), nil
}

// showsLower reports whether the directory n shows entries of the lower. A removed directory shows none.
func (n *inode) showsLower() bool { return n.lower != nil && n.nlink > 0 }

// setName makes name in the directory n lead to the inode to; nil makes it a whiteout.
func (n *inode) setName(name string, to *inode) {
	if n.ownState().entries == nil {
		n.entries = map[string]*inode{}
	}
	n.entries[name] = to
}

// addName makes name in the dirty directory dir lead to n; the next commit writes that to the log.
func (f *FS) addName(dir *inode, name string, n *inode) {
	f.snapshotListings(dir)
	dir.setName(name, n)
	f.dirtyNames[nameKey{dir, name}] = struct{}{}
	f.pendingLog.Add(int64(nameRecordSize + len(name)))
}

// removeName removes name from the dirty directory dir. With whiteout it hides the lower entry of that name.
func (f *FS) removeName(dir *inode, name string, whiteout bool) {
	f.snapshotListings(dir)
	if whiteout {
		dir.setName(name, nil)
	} else {
		delete(dir.entries, name)
	}
	f.dirtyNames[nameKey{dir, name}] = struct{}{}
	f.pendingLog.Add(int64(nameRecordSize + len(name)))
}

// needsWhiteout reports whether removing name of n from dir must hide a lower entry of that name.
func (f *FS) needsWhiteout(dir *inode, name string, n *inode) (bool, error) {
	if dir.lower == nil {
		return false, nil
	}
	// Without a whiteout, a later lookup could find a new lower directory of that name.
	if n.isDir() && n.lower != nil && n.lower.IsEntry(dir.lower, name) {
		return true, nil
	}
	has, err := f.lower.Has(dir.lower, name)
	if f.lowerGone(dir, err) {
		return false, nil
	}
	return has, err
}

// isEmpty reports whether the directory dir shows no entries, of layers or the lower: it can be removed.
func (f *FS) isEmpty(dir *inode) (bool, error) {
	for _, n := range dir.entries {
		if n != nil {
			return false, nil
		}
	}
	if dir.lower == nil {
		return true, nil
	}
	own, err := f.lower.List(dir.lower)
	if f.lowerGone(dir, err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range own {
		if _, ok := dir.entries[e.Name]; !ok {
			return false, nil
		}
	}
	return true, nil
}

// New describes an inode, such as a file or directory, that [FS.Make] is to create.
type New struct {
	Name string // in its directory; empty for an inode without a name, see [FS.Link]
	// Mode includes the file type. Umask is applied to it, unless the directory has a default
	// ACL.
	Mode, Umask, UID, GID uint32
	Rdev                  uint32
	Target                string // of a symbolic link
}

// Make creates the inode that what describes, such as a file, in the directory with the FUSE node id id.
func (f *FS) Make(id uint64, what New) (Entry, error) {
	dir, err := f.inodeByID(id)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if what.Name != "" {
		old, err := f.lookup(dir, what.Name)
		if err != nil {
			return Entry{}, err
		}
		if old != nil {
			return Entry{}, unix.EEXIST
		}
	}
	if dir.nlink == 0 {
		return Entry{}, unix.ENOENT
	}
	err = f.checkLogSpace(int64(inodeRecordSize+nameRecordSize+len(what.Name)), 1)
	if err == nil {
		err = f.makeDirty(dir)
	}
	if err != nil {
		return Entry{}, err
	}
	t := logfile.Now()
	n := &inode{
		id: f.nextIno, changed: true, layer: logfile.NoContent,
		dirtyState: &dirtyState{recordedIn: logfile.NoContent, target: what.Target},
		attr: attr{
			ino: f.nextIno, mode: what.Mode, uid: what.UID, gid: what.GID, rdev: what.Rdev, nlink: 1,
			atime: t, mtime: t, ctime: t,
		},
	}
	f.nextIno++
	if dir.mode&unix.S_ISGID != 0 {
		if n.gid = dir.gid; n.isDir() {
			n.mode |= unix.S_ISGID
		}
	}
	f.inherit(dir, n, what.Umask)
	f.inodes[n.id] = n
	f.markDirty(n)
	if what.Name == "" {
		n.nlink = 0
		f.unlinked[n] = struct{}{}
		return f.entry(n), nil
	}
	if n.isDir() {
		n.nlink = 2
		addSubdirs(dir, 1)
	}
	f.addName(dir, what.Name, n)
	dir.mtime, dir.ctime = t, t
	return f.entry(n), nil
}

// addSubdirs adds the number by to dir's link count, unless the lower does not count subdirectories there.
func addSubdirs(dir *inode, by int) {
	if dir.nlink > 1 {
		dir.nlink = uint32(int(dir.nlink) + by)
	}
}

// Link adds the name to the directory dirID as a hard link of the inode id, as link(2).
func (f *FS) Link(id, dirID uint64, name string) (Entry, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return Entry{}, err
	}
	dir, err := f.inodeByID(dirID)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old, err := f.lookup(dir, name)
	if err != nil {
		return Entry{}, err
	}
	if old != nil {
		return Entry{}, unix.EEXIST
	}
	if dir.nlink == 0 {
		return Entry{}, unix.ENOENT
	}
	if err := errors.Join(f.checkLogSpace(int64(nameRecordSize+len(name)), 0), f.makeDirty(n), f.makeDirty(dir)); err != nil {
		return Entry{}, err
	}
	f.addName(dir, name, n)
	n.nlink++
	delete(f.unlinked, n)
	n.ctime = logfile.Now()
	dir.mtime, dir.ctime = n.ctime, n.ctime
	return f.entry(n), nil
}

// Remove removes a name from the directory id, as unlink(2), or as rmdir(2) with rmdir set.
func (f *FS) Remove(id uint64, name string, rmdir bool) error {
	dir, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.lookup(dir, name)
	if err != nil {
		return err
	}
	switch {
	case n == nil:
		return unix.ENOENT
	case rmdir && !n.isDir():
		return unix.ENOTDIR
	case !rmdir && n.isDir():
		return unix.EISDIR
	}
	if err := f.checkRemove(n); err != nil {
		return err
	}
	whiteout, err := f.needsWhiteout(dir, name, n)
	if err != nil {
		return err
	}
	if err := f.makeDirtyUnchecked(dir); err != nil {
		return err
	}
	f.removeName(dir, name, whiteout)
	if rmdir {
		addSubdirs(dir, -1)
	}
	dir.mtime = logfile.Now()
	dir.ctime = dir.mtime
	f.dropLink(n)
	return nil
}

// checkRemove returns the reason why a name of n cannot be removed, or nil. It also does the steps that may
// fail, such as making n dirty, so that the removal itself cannot.
func (f *FS) checkRemove(n *inode) error {
	if n.isDir() {
		empty, err := f.isEmpty(n)
		if err == nil && !empty {
			err = unix.ENOTEMPTY
		}
		return err
	}
	if n.nlink > 1 {
		return f.makeDirtyUnchecked(n)
	}
	return nil
}

// dropLink lowers the link count of the inode n by one. At 0 the inode stays until the kernel forgets it.
func (f *FS) dropLink(n *inode) {
	n.ctime = logfile.Now()
	if n.isDir() || n.nlink <= 1 {
		n.ownState().entries = nil
		n.nlink = 0
		f.unlinked[n] = struct{}{}
		if n.isDir() {
			f.removedDirs[n.id] = struct{}{}
		}
		if n.logged {
			f.markDirty(n)
		}
		f.dropUnused(n)
		return
	}
	n.nlink--
	f.markDirty(n)
}

// Rename does renameat2(2) with flags, but not RENAME_WHITEOUT, from name in the directory fromID to toName
// in toID. The inode keeps its lower reference, so the entries of a renamed directory are not copied up.
func (f *FS) Rename(fromID uint64, name string, toID uint64, toName string, flags uint32) error {
	from, err := f.inodeByID(fromID)
	if err != nil {
		return err
	}
	to, err := f.inodeByID(toID)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.lookup(from, name)
	if err != nil {
		return err
	}
	old, err := f.lookup(to, toName)
	if err != nil {
		return err
	}
	if err := f.checkRename(n, to, old, flags); err != nil || n == old {
		return err
	}
	whiteout, err := f.needsWhiteout(from, name, n)
	if err != nil {
		return err
	}
	if err := errors.Join(f.makeDirty(n), f.makeDirty(from), f.makeDirty(to)); err != nil {
		return err
	}
	exchange := flags&unix.RENAME_EXCHANGE != 0
	if exchange {
		if err := f.makeDirty(old); err != nil {
			return err
		}
		f.addName(from, name, old)
		old.ctime = logfile.Now()
	} else {
		f.removeName(from, name, whiteout)
	}
	f.addName(to, toName, n)
	updateSubdirs(from, to, n, old, exchange)
	n.ctime = logfile.Now()
	for _, dir := range []*inode{from, to} {
		dir.mtime, dir.ctime = n.ctime, n.ctime
	}
	if old != nil && !exchange {
		if old.layer == logfile.InLower && old.nlink <= 1 { // an editor replaces a file this way
			f.addOriginal(f.saveOriginal(old, f.layers[f.top()], old.shown()))
		}
		f.dropLink(old)
	}
	return nil
}

// checkRename returns the reason why n cannot be renamed into the directory to, or nil. old has the target
// name now, and is nil for a free name; flags are those of renameat2(2).
func (f *FS) checkRename(n, to, old *inode, flags uint32) error {
	exchange := flags&unix.RENAME_EXCHANGE != 0
	switch {
	case flags&^(unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE) != 0:
		return unix.EINVAL
	case n == nil || exchange && old == nil || to.nlink == 0:
		return unix.ENOENT
	case old != nil && flags&unix.RENAME_NOREPLACE != 0:
		return unix.EEXIST
	case n == old || old == nil || exchange:
		return nil
	case old.isDir() && !n.isDir():
		return unix.EISDIR
	case !old.isDir() && n.isDir():
		return unix.ENOTDIR
	}
	return f.checkRemove(old)
}

// updateSubdirs adjusts the link counts of from and to after n replaced old or, with exchange, swapped names.
func updateSubdirs(from, to, n, old *inode, exchange bool) {
	if n.isDir() {
		addSubdirs(from, -1)
		addSubdirs(to, 1)
	}
	if old != nil && old.isDir() {
		addSubdirs(to, -1)
		if exchange {
			addSubdirs(from, 1)
		}
	}
}
