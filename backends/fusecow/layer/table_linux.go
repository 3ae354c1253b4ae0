package layer

import (
	"errors"
	"io/fs"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// The inode table. All methods in this file require mu. They return bare errnos or errors that wrap one.

// lowerInode returns the inode that shows a lower inode with attributes st, found as name in dir. All names of
// a lower inode yield the same inode, so that hard links stay together when it is changed.
func (f *FS) lowerInode(dir *lower.Ref, name string, st *vfs.Stat) *inode {
	id := f.lower.IdentityOf(st)
	no := f.lower.InoOf(&id)
	for _, n := range [...]*inode{f.inodes[no], f.renumbered[id]} {
		if n != nil && n.nlink > 0 && n.lower != nil && n.lower.Identity == id &&
			n.kind() == st.Mode&unix.S_IFMT && f.isSameInode(n, dir, name, st) {
			f.addAlias(n, dir, name)
			return n
		}
	}
	if f.inodes[no] != nil {
		no = f.nextIno // the number was reused in the lower, or the lower inode was renamed there
		f.nextIno++
	}
	ref := &lower.Ref{Dir: dir, Name: name, Identity: id}
	n := &inode{id: no, lower: ref, attr: attrOf(st), layer: logfile.NoContent, dirtyState: cleanState}
	if n.ino = no; n.regular() {
		n.layer = logfile.InLower
	}
	f.insert(n)
	return n
}

// isSameInode reports whether the lower entry name in dir, with the same identity as the lower inode of n, is
// a hard link of n. It returns false if the lower file was renamed: n still stands for its first name.
func (f *FS) isSameInode(n *inode, dir *lower.Ref, name string, st *vfs.Stat) bool {
	if n.lower.IsEntry(dir, name) {
		return true
	}
	if n.isDir() && f.LowerOnly() { // either view may have found it, by different names
		return false
	}
	return n.changed && !n.isDir() && st.Nlink > 1 || f.lower.StillLeads(n.lower)
}

// maxAliases is how many further lower names (hard links) are remembered for one inode, since each takes
// memory. Of more names the kernel is not notified if the file is replaced, see [FS.notifyStale].
const maxAliases = 8

// addAlias records a further lower name (a hard link) of n, for [FS.notifyStale] to notify the kernel of.
func (f *FS) addAlias(n *inode, dir *lower.Ref, name string) {
	if n.isDir() || n.lower.IsEntry(dir, name) || len(f.aliases[n]) == maxAliases {
		return
	}
	for _, a := range f.aliases[n] {
		if a.IsEntry(dir, name) {
			return
		}
	}
	f.aliases[n] = append(f.aliases[n], &lower.Ref{Dir: dir, Name: name})
}

// insert adds n to the inode table, in which the kernel's requests find inodes by id.
func (f *FS) insert(n *inode) {
	f.inodes[n.id] = n
	if n.lower != nil && n.lower.Ino != 0 && n != f.root && n.id != f.lower.InoOf(&n.lower.Identity) {
		f.renumbered[n.lower.Identity] = n
	}
}

func (f *FS) evict(n *inode) {
	delete(f.inodes, n.id)
	delete(f.aliases, n)
	if n.lower != nil && f.renumbered[n.lower.Identity] == n {
		delete(f.renumbered, n.lower.Identity)
	}
}

// dropUnused removes the inode n from the inode table if neither the kernel nor a name refers to it.
func (f *FS) dropUnused(n *inode) {
	switch {
	case n.lookups > 0 || n == f.root:
	case n.nlink == 0:
		f.destroy(n)
	case !n.changed:
		f.evict(n)
		f.fds.Drop(lower.Key{Layer: n.layer, ID: n.id})
		f.fds.Drop(lower.DirKey(n.lower))
	}
}

// destroy removes n, which has no name any more, from the inode table. It deletes the content only after the
// log has recorded the removal: a log must never refer to missing content.
func (f *FS) destroy(n *inode) {
	f.evict(n)
	delete(f.unlinked, n)
	delete(f.removedDirs, n.id)
	f.fds.Drop(lower.Key{Layer: n.layer, ID: n.id})
	f.fds.Drop(lower.DirKey(n.lower))
	if n.sparse != nil {
		for _, s := range n.sparse.Sources {
			f.fds.Drop(lower.Key{Layer: s.Layer, ID: n.id})
		}
	}
	f.unchargeInode(n)
	if n.logged {
		f.dirty[n] = struct{}{}
	} else {
		delete(f.dirty, n)
	}
	switch {
	case n.layer < 0 || n.layer != f.top():
	case n.logged:
		f.garbage = append(f.garbage, deadContent{n.id, n.charged})
	default:
		// If this fails, recovery of the layer removes the file.
		_ = f.layers[n.layer].RemoveContent(n.id)
		f.unchargeContent(n)
	}
}

// makeDirty makes n dirty: from now on the inode table, not the lower, has its attributes, and the log
// records it. EDQUOT means that the quota allows no more log records.
func (f *FS) makeDirty(n *inode) error {
	if n.recordedIn != f.top() && !f.readOnly {
		if err := f.checkLogSpace(n.recordSize(), 1); err != nil {
			return err
		}
	}
	if !n.changed && !f.readOnly {
		if _, err := f.lowerParent(n, f.makeDirty); err != nil {
			return err
		}
	}
	return f.makeDirtyUnchecked(n)
}

// makeDirtyUnchecked is [FS.makeDirty] for operations that free space, so the quota limits no log records.
func (f *FS) makeDirtyUnchecked(n *inode) error {
	if f.readOnly {
		return unix.EROFS
	}
	if !n.changed {
		if err := f.loadLower(n.ownState()); err != nil {
			return err
		}
		dir, err := f.lowerParent(n, f.makeDirtyUnchecked)
		if err != nil {
			return err
		}
		n.changed, n.lookedUp = true, n.ctime
		if dir != nil {
			f.addName(dir, n.lower.Name, n)
		}
	}
	f.markDirty(n)
	return nil
}

// lowerParent makes the lower parent directory of n dirty, by calling change, and returns it for the caller
// to add n's name to. It returns nil if n has no lower parent or that already names it. A dirty inode needs
// that explicit name because the lower may get another file under it, as when an editor saves.
func (f *FS) lowerParent(n *inode, change func(*inode) error) (*inode, error) {
	if n.lower == nil || n.lower.Dir == nil || n.nlink == 0 {
		return nil, nil //nolint:nilnil // as it says
	}
	dir, err := f.dirInode(n.lower.Dir)
	if err != nil {
		return nil, err
	}
	if _, named := dir.entries[n.lower.Name]; named || dir.nlink == 0 {
		return nil, nil //nolint:nilnil // as it says
	}
	return dir, change(dir)
}

// dirInode returns the inode, in the table of this filesystem, that shows the lower directory o.
func (f *FS) dirInode(o *lower.Ref) (*inode, error) {
	if o.Dir == nil {
		return f.root, nil
	}
	for _, n := range [...]*inode{f.inodes[f.lower.InoOf(&o.Identity)], f.renumbered[o.Identity]} {
		if n != nil && n.lower != nil && n.lower.Identity == o.Identity && (n.lower == o || n.lower.IsEntry(o.Dir, o.Name)) {
			return n, nil
		}
	}
	st, err := f.lower.Stat(o.Dir, o.Name)
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.ESTALE
	}
	if err != nil {
		return nil, err
	}
	return f.lowerInode(o.Dir, o.Name, &st), nil
}
