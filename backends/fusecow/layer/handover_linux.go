package layer

import (
	"cmp"
	"errors"
	"maps"

	"golang.org/x/sys/unix"
)

// A Name is one that a kernel was told of, or told that there is none.
type Name struct {
	Dir  uint64
	Name string
}

// Unlike are the names that a kernel which asks f may know, and that may lead elsewhere in
// next, which has other layers over the same tree. Cost: in proportion to what was changed in
// the layers of both, with a look at the tree below for what was changed in one of them alone.
func (f *FS) Unlike(next *FS) (all []Name) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	next.mu.RLock()
	defer next.mu.RUnlock()
	for id, x := range f.nodes {
		if !x.isDir() || x.lookups == 0 {
			continue
		}
		y := next.nodes[id]
		for name := range x.entries {
			if !f.leadsTogether(x, y, name) {
				all = append(all, Name{id, name})
			}
		}
		if y == nil {
			continue
		}
		for name := range y.entries {
			if _, told := x.entries[name]; !told && !f.leadsTogether(x, y, name) {
				all = append(all, Name{id, name})
			}
		}
	}
	return all
}

// leadsTogether reports whether a name leads to one node in two states of a directory, or to
// none, y being nil where that is not changed, or has gone.
func (f *FS) leadsTogether(x, y *node, name string) bool {
	a, told := x.entries[name]
	var b *node
	other := false
	if y != nil {
		b, other = y.entries[name]
	}
	if told && other {
		return a == b || a != nil && b != nil && a.id == b.id
	}
	return x.leadsBelow(y, name) && y.leadsBelow(x, name) && f.isBelow(x.from, name, cmp.Or(a, b))
}

// isBelow reports whether the tree below has a node, and nothing that took its place, under a name.
func (f *FS) isBelow(dir *origin, name string, n *node) bool {
	st, err := f.statBelow(dir, name)
	if err != nil {
		return false
	}
	id := f.identityOf(&st)
	return n.from.identity == id && n.id == f.number(&id)
}

// ErrOther says that two filesystems mean different files by a number that the kernel knows.
var ErrOther = errors.New("what is in use is another file there")

// HandOver has next answer for all that a kernel was told by f. Next has other layers over the
// same tree, and nobody was told anything by it; nobody may ask either of them meanwhile, and f
// is only to be closed afterwards. The answer is what the kernel has to forget the attributes
// and the pages of.
//
// A file that both have is one file, and holds from then on what it does in next. What next
// has not lives on without a name, as after unlink(2), while the kernel knows it, and its content is
// copied, or its blocks shared: so that the kernel is to have forgotten before what nobody uses. What
// cannot be had any more, for there is no room or it has changed below, answers ESTALE. A directory that the
// kernel removed itself and next has is another inode from then on: who has the removed one open gets EIO. Cost: a look at
// all that the kernel knows. Errors: [ErrOther], and those of
// then, which is called when nothing else can go wrong; after one nothing has changed.
func (f *FS) HandOver(next *FS, then func() error) (stale []uint64, err error) {
	for id, n := range f.nodes {
		if m := next.nodes[id]; m != nil && n.lookups > 0 && !sameFile(n, m) {
			return nil, ErrOther
		}
	}
	if err := then(); err != nil {
		return nil, err
	}
	h := handover{from: f, to: next, shown: newAtlas(next), homes: map[*origin]home{}}
	for id, n := range f.nodes {
		if n.lookups == 0 {
			continue
		}
		m := next.nodes[id]
		if m == nil {
			m = h.take(n)
			next.mu.Lock()
			next.enter(m)
			next.mu.Unlock()
		}
		m.lookups = n.lookups
		if _, removed := f.removed[id]; removed && m.nlink > 0 {
			delete(f.removed, id)
			f.again[id]++
		}
		if !h.alike(n, m) {
			stale = append(stale, id)
		}
	}
	f.lists.mu.Lock()
	defer f.lists.mu.Unlock()
	next.lists.next, next.lists.all, next.lists.unread = f.lists.next, f.lists.all, f.lists.unread
	next.late.paths, next.late.bytes = f.late.paths, f.late.bytes
	next.stale, next.removed, next.again = f.stale, f.removed, f.again
	f.removed = nil // f only closes, and drops what has no name
	return stale, nil
}

// Known is how many nodes there are in memory: those that were changed, and those that the
// kernel knows.
func (f *FS) Known() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.nodes)
}

// sameFile reports whether two filesystems over one tree mean the same by a number. Those of
// what was made above are drawn, see [fresh].
func sameFile(n, m *node) bool {
	if n.kind() != m.kind() || (n.from == nil) != (m.from == nil) {
		return false
	}
	return n.from == nil || n.from.dir == nil || n.from.identity == m.from.identity
}

// A handover is one that is under way.
type handover struct {
	from, to *FS
	shown    *atlas // what to has, before it took over anything
	homes    map[*origin]home
}

// A home is a directory of the tree below as it is shown: the node that it is, where it was
// changed, and whether it is there at all.
type home struct {
	dir *node
	ok  bool
}

// shows reports whether what was not changed is where the tree below has it.
func (h *handover) shows(o *origin) bool {
	at, known := h.homes[o.dir]
	if !known {
		if at.dir = h.shown.places[o.dir.path()]; at.dir != nil {
			_, at.ok = h.shown.dir(at.dir)
		} else {
			_, at.ok = h.shown.below(o.dir)
		}
		h.homes[o.dir] = at
	}
	if at.dir == nil || !at.ok {
		return at.ok
	}
	_, other := at.dir.entries[o.name]
	return !other
}

// take is the node that stands for one which no layer of to tells of.
func (h *handover) take(n *node) *node {
	if n.from == nil || !h.shows(n.from) {
		return h.unnamed(n)
	}
	m := &node{id: n.id, from: n.from, attr: n.attr, place: nowhere, deeds: none}
	if n.changed || n.nlink == 0 {
		st, err := h.to.statBelow(n.from.dir, n.from.name)
		if err != nil || h.to.identityOf(&st) != n.from.identity {
			return h.unnamed(n)
		}
		m.attr = attrOf(&st)
		m.ino = n.ino
	}
	if m.regular() {
		m.place = below
	}
	return m
}

// unnamed is a node that lives on without a name.
func (h *handover) unnamed(n *node) *node {
	m := &node{id: n.id, from: n.from, attr: n.attr, place: n.place, changed: n.changed, deeds: none}
	m.nlink = 0
	if n.changed {
		m.own().target, m.xattrs = n.target, maps.Clone(n.xattrs)
	}
	if m.isDir() {
		m.changed = true
	}
	if n.place >= 0 {
		if err := h.bring(n, m); err != nil { // it is where nothing is, and keeps its number from others
			m.from, m.place = &origin{dir: h.to.root.from}, below
		}
	}
	h.to.mu.Lock()
	h.to.loose[m] = struct{}{}
	h.to.mu.Unlock()
	return m
}

// bring copies the content of a node for the one that it becomes.
func (h *handover) bring(n, m *node) error {
	top := h.to.top()
	dst, err := h.to.makeContent(h.to.layers[top], m.id)
	if err != nil {
		return err
	}
	reserved, err := h.copy(dst, n)
	if err != nil {
		return errors.Join(err, unix.Close(dst), h.to.layers[top].remove(m.id))
	}
	h.to.mu.Lock()
	defer h.to.mu.Unlock()
	m.own()
	m.place = top
	h.to.recount(m, dst, reserved)
	h.to.fds.add(fdKey{place: top, id: m.id}, dst)
	return nil
}

// copy copies the content of a node to an empty file, and reserves what that takes.
func (h *handover) copy(dst int, n *node) (reserved int64, err error) {
	if n.parts != nil {
		if reserved = h.to.up(n.size); !h.to.reserveSoon(reserved) {
			return 0, unix.EDQUOT
		}
		err = errors.Join(h.from.copyParts(dst, n, n.parts, n.size), unix.Ftruncate(dst, n.size))
		if err != nil {
			h.to.reserve(-reserved)
		}
		return reserved, err
	}
	src, err := h.from.source(n)
	if err != nil {
		return 0, err
	}
	defer h.from.fds.put(src)
	var st unix.Stat_t
	if err := unix.Fstat(src.n, &st); err != nil {
		return 0, err
	}
	reserved = min(h.to.up(st.Blocks*512), h.to.up(n.size))
	return reserved, h.to.copyTo(dst, src.n, reserved, false)
}

// alike reports whether a node is the same in both, so that a kernel may keep what it has.
func (h *handover) alike(n, m *node) bool {
	if n.changed != m.changed || n.attr != m.attr || n.target != m.target || n.parts != nil || m.parts != nil {
		return false
	}
	if n.place >= 0 && m.place >= 0 && h.from.layers[n.place].path != h.to.layers[m.place].path {
		return false
	}
	return (n.place == m.place || n.place >= 0 && m.place >= 0) && maps.Equal(n.xattrs, m.xattrs)
}
