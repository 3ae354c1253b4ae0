package layer

import (
	"cmp"
	"errors"
	"maps"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"golang.org/x/sys/unix"
)

// ChangedNames returns the names that the kernel may have looked up in f and that lead to another inode in
// next, a filesystem with other layers over the same lower. The kernel has to forget these. Cost: in
// proportion to the changes in both, and a stat(2) in the lower for each name that one of them has changed.
func (f *FS) ChangedNames(next *FS) (all []logfile.Name) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	next.mu.RLock()
	defer next.mu.RUnlock()
	for id, x := range f.inodes {
		if !x.isDir() || x.lookups == 0 {
			continue
		}
		y := next.inodes[id]
		for name := range x.entries {
			if !f.sameTarget(x, y, name) {
				all = append(all, logfile.Name{Dir: id, Name: name})
			}
		}
		if y == nil {
			continue
		}
		for name := range y.entries {
			if _, named := x.entries[name]; !named && !f.sameTarget(x, y, name) {
				all = append(all, logfile.Name{Dir: id, Name: name})
			}
		}
	}
	return all
}

// sameTarget reports whether name leads to the same inode, or to none, in x and y, two states of a directory.
// A nil y means that no layer of the second state changed the directory, or that it is gone there.
func (f *FS) sameTarget(x, y *inode, name string) bool {
	a, named := x.entries[name]
	var b *inode
	other := false
	if y != nil {
		b, other = y.entries[name]
	}
	if named && other {
		return a == b || a != nil && b != nil && a.id == b.id
	}
	if !x.nameUnchanged(y, name) || !y.nameUnchanged(x, name) {
		return false
	}
	n := cmp.Or(a, b)
	return f.lower.Names(x.lower, name, &n.lower.Identity, n.id)
}

// ErrOtherFile means that one inode number, known to the kernel, stands for different files in
// the two filesystems of a HandOver.
var ErrOtherFile = errors.New("an open file is another file in the other state")

// HandOver makes next take over all inodes that the kernel has looked up in f, so that a mount can show
// another state without being mounted anew. next has other layers over the same lower and was never mounted.
// Nobody may use either filesystem meanwhile, and f can only be closed afterwards. It returns the inodes
// whose cached attributes and pages the kernel has to drop.
//
//   - An inode that both have keeps its identity and takes its state from next.
//   - An inode that next lacks lives on without a name, as after unlink(2), for as long as the kernel refers to
//     it. Its content is copied or cloned, so the kernel should have forgotten unused inodes beforehand.
//     Content that cannot be copied, for lack of space or because it changed in the lower, is lost: reads
//     return ESTALE.
//   - A directory that the kernel removed and that next has becomes a new inode. Processes that hold the
//     removed one open get EIO.
//
// HandOver calls then when all that can fail is done. Cost: a look at each inode that the kernel knows.
// Errors: [ErrOtherFile], and those of then. After an error nothing has changed.
func (f *FS) HandOver(next *FS, then func() error) (stale []uint64, err error) {
	for id, n := range f.inodes {
		if m := next.inodes[id]; m != nil && n.lookups > 0 && !sameFile(n, m) {
			return nil, ErrOtherFile
		}
	}
	if err := then(); err != nil {
		return nil, err
	}
	h := handover{from: f, to: next, index: newPathIndex(next), shownDirs: map[*lower.Ref]shownDir{}}
	for id, n := range f.inodes {
		if n.lookups == 0 {
			continue
		}
		m := next.inodes[id]
		if m == nil {
			m = h.counterpart(n)
			next.mu.Lock()
			next.insert(m)
			next.mu.Unlock()
		}
		m.lookups = n.lookups
		if _, removed := f.removedDirs[id]; removed && m.nlink > 0 {
			delete(f.removedDirs, id)
			f.generations[id]++
		}
		if !h.sameState(n, m) {
			stale = append(stale, id)
		}
	}
	f.listings.mu.Lock()
	defer f.listings.mu.Unlock()
	next.listings.next, next.listings.all, next.listings.unread = f.listings.next, f.listings.all, f.listings.unread
	next.lower.TakeOver(f.lower)
	next.onStale, next.removedDirs, next.generations = f.onStale, f.removedDirs, f.generations
	f.removedDirs = nil // so that Close drops all unlinked inodes
	return stale, nil
}

// InodeCount returns how many inodes are in memory: changed ones, and those that the kernel has looked up.
// Before a switch the server waits until the number stops falling.
func (f *FS) InodeCount() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.inodes)
}

// sameFile reports whether n and m, inodes with one number in two filesystems over the same lower, are the
// same file. Numbers of new inodes are random, see [logfile.RandomIno].
func sameFile(n, m *inode) bool {
	if n.kind() != m.kind() || (n.lower == nil) != (m.lower == nil) {
		return false
	}
	return n.lower == nil || n.lower.Dir == nil || n.lower.Identity == m.lower.Identity
}

// A handover is the state of a running [FS.HandOver] of the kernel's inodes to another filesystem.
type handover struct {
	from, to  *FS
	index     *pathIndex // of to, before the handover
	shownDirs map[*lower.Ref]shownDir
}

// A shownDir caches how a filesystem shows a lower directory: as the dirty inode dir, unchanged if dir is
// nil, or not at all if ok is false.
type shownDir struct {
	dir *inode
	ok  bool
}

// shows reports whether the new filesystem shows the lower inode o, unchanged, under the name it has there.
func (h *handover) shows(o *lower.Ref) bool {
	at, known := h.shownDirs[o.Dir]
	if !known {
		if at.dir = h.index.byLower[o.Dir.Path()]; at.dir != nil {
			_, at.ok = h.index.dirPath(at.dir)
		} else {
			_, at.ok = h.index.lowerPath(o.Dir)
		}
		h.shownDirs[o.Dir] = at
	}
	if at.dir == nil || !at.ok {
		return at.ok
	}
	_, other := at.dir.entries[o.Name]
	return !other
}

// counterpart returns the inode that replaces n in the new filesystem, whose layers do not record n: one that
// shows n's lower file, or an inode without a name if that file is not visible there.
func (h *handover) counterpart(n *inode) *inode {
	if n.lower == nil || !h.shows(n.lower) {
		return h.orphan(n)
	}
	m := &inode{id: n.id, lower: n.lower, attr: n.attr, layer: logfile.NoContent, dirtyState: cleanState}
	if n.changed || n.nlink == 0 {
		st, err := h.to.lower.Stat(n.lower.Dir, n.lower.Name)
		if err != nil || h.to.lower.IdentityOf(&st) != n.lower.Identity {
			return h.orphan(n)
		}
		m.attr = attrOf(&st)
		m.ino = n.ino
	}
	if m.regular() {
		m.layer = logfile.InLower
	}
	return m
}

// orphan returns a new inode without a name, with the state and content of n, which the new filesystem lacks.
func (h *handover) orphan(n *inode) *inode {
	m := &inode{id: n.id, lower: n.lower, attr: n.attr, layer: n.layer, changed: n.changed, dirtyState: cleanState}
	m.nlink = 0
	if n.changed {
		m.ownState().target, m.xattrs = n.target, maps.Clone(n.xattrs)
	}
	if m.isDir() {
		m.changed = true
	}
	if n.layer >= 0 {
		if err := h.copyContent(n, m); err != nil {
			// The content is lost. A reference to a lower file that cannot exist makes reads return ESTALE, and the
			// inode keeps its number in use.
			m.lower, m.layer = &lower.Ref{Dir: h.to.root.lower}, logfile.InLower
		}
	}
	h.to.mu.Lock()
	h.to.unlinked[m] = struct{}{}
	h.to.mu.Unlock()
	return m
}

// copyContent copies the content of n, in the replaced filesystem, to the top layer of the new one, as m's.
func (h *handover) copyContent(n, m *inode) error {
	top := h.to.top()
	dst, err := h.to.createContent(h.to.layers[top], m.id)
	if err != nil {
		return err
	}
	reserved, err := h.copy(dst, n)
	if err != nil {
		return errors.Join(err, unix.Close(dst), h.to.layers[top].RemoveContent(m.id))
	}
	h.to.mu.Lock()
	defer h.to.mu.Unlock()
	m.ownState()
	m.layer = top
	h.to.recharge(m, dst, reserved)
	h.to.fds.Add(lower.Key{Layer: top, ID: m.id}, dst)
	return nil
}

// copy copies the content of n to the empty file dst, and returns the bytes reserved in the quota for it.
func (h *handover) copy(dst int, n *inode) (reserved int64, err error) {
	if n.sparse != nil {
		if reserved = h.to.alignUp(n.size); !h.to.reserveWait(reserved) {
			return 0, unix.EDQUOT
		}
		err = errors.Join(h.from.sparseContent(n, n.sparse).Copy(dst, n.size), unix.Ftruncate(dst, n.size))
		if err != nil {
			h.to.reserve(-reserved)
		}
		return reserved, err
	}
	src, err := h.from.openContent(n)
	if err != nil {
		return 0, err
	}
	defer h.from.fds.Put(src)
	var st unix.Stat_t
	if err := unix.Fstat(src.Num, &st); err != nil {
		return 0, err
	}
	reserved = min(h.to.alignUp(st.Blocks*512), h.to.alignUp(n.size))
	return reserved, h.to.copyTo(dst, src.Num, reserved, false)
}

// sameState reports whether n and its counterpart m are equal, so that the kernel's cache of n stays valid.
func (h *handover) sameState(n, m *inode) bool {
	if n.changed != m.changed || n.attr != m.attr || n.target != m.target || n.sparse != nil || m.sparse != nil {
		return false
	}
	if n.layer >= 0 && m.layer >= 0 && h.from.layers[n.layer].Path != h.to.layers[m.layer].Path {
		return false
	}
	return (n.layer == m.layer || n.layer >= 0 && m.layer >= 0) && maps.Equal(n.xattrs, m.xattrs)
}
