package layer

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// commit tells the log what it has not heard of: one frame, so that of two
// changes a crash never keeps the later one alone. With sync it waits for the
// disk, which has nothing to do where the log did not grow. Content whose nodes have gone is removed
// when a power cut would not leave a log that tells of them. After an error all of it is
// still unheard of, or content is still there.
func (f *FS) commit(sync bool) error {
	if f.readOnly {
		return nil
	}
	f.logging.Lock()
	defer f.logging.Unlock()
	f.mu.Lock()
	d, s := f.layers[f.top()], f.tally()
	u := f.takeUnheard()
	f.mu.Unlock()
	defer f.going.Store(0)
	if len(u.records) > 0 {
		err := f.appendOrMakeRoom(d, s, u)
		f.pending.Add(-u.pending)
		if err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.giveBack(u)
			return err
		}
		f.frame.Add(1)
		f.shrink(d)
		f.countLog(d, s)
	}
	var err error
	switch frame := f.frame.Load(); {
	case sync:
		if err = d.sync(); err == nil {
			f.firm.Store(frame)
		}
	case len(u.garbage) > 0:
		err = kernel.Settle(d.log)
	}
	for err == nil && len(u.garbage) > 0 {
		if err = f.removeRemains(d, s, u.garbage[0]); err == nil {
			u.garbage = u.garbage[1:]
		}
	}
	if len(u.garbage) > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.garbage = append(f.garbage, u.garbage...)
	}
	return err
}

// unheard is what the log is about to be told.
type unheard struct {
	records   []byte
	dirty     map[*node]struct{}
	names     map[nameKey]struct{}
	garbage   []remains
	originals []*Original
	pending   int64
	// before is what the log had heard of the nodes.
	before []heard
}

type heard struct {
	n      *node
	logged bool
	frame  int64
}

// takeUnheard takes all that the log has not heard of. Holds mu.
func (f *FS) takeUnheard() *unheard {
	u := &unheard{dirty: f.dirty, names: f.names, originals: f.originals, pending: f.pending.Load()}
	u.records, u.before = f.records()
	if len(u.records) == 0 && len(f.garbage) == 0 {
		return u
	}
	u.garbage = f.garbage
	f.dirty, f.names, f.garbage, f.originals = map[*node]struct{}{}, map[nameKey]struct{}{}, nil, nil
	for _, g := range u.garbage {
		f.going.Add(g.held)
	}
	return u
}

// giveBack has all of it be unheard of again. Holds mu.
func (f *FS) giveBack(u *unheard) {
	f.pending.Add(u.pending)
	for n := range u.dirty {
		f.dirty[n] = struct{}{}
	}
	for k := range u.names {
		f.names[k] = struct{}{}
	}
	next := f.frame.Load() + 1
	for _, h := range u.before {
		h.n.logged = h.logged
		if h.n.frame == next {
			h.n.frame = h.frame
		}
	}
	f.garbage = append(f.garbage, u.garbage...)
	f.originals = append(f.originals, u.originals...)
}

// appendOrMakeRoom writes a frame. Where the disk is full, content whose nodes have gone makes room for it, as
// little as will do: who is killed just then finds such a file again, empty. Otherwise a full disk could not be
// emptied from inside.
func (f *FS) appendOrMakeRoom(d *dir, s *slot, u *unheard) error {
	for {
		err := d.append(u.records)
		if err == nil || len(u.garbage) == 0 || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			return err
		}
		for freed := int64(0); freed < int64(len(u.records)) && len(u.garbage) > 0; u.garbage = u.garbage[1:] {
			if rerr := f.removeRemains(d, s, u.garbage[0]); rerr != nil {
				return errors.Join(err, rerr)
			}
			freed += u.garbage[0].held
		}
	}
}

func (f *FS) removeRemains(d *dir, s *slot, g remains) error {
	err := d.remove(g.id)
	if err == nil {
		s.bytes.Add(-g.held)
		f.going.Add(-g.held)
	}
	return err
}

// isFirm reports whether stable storage has a record by which the content of a node is
// found, so that nothing but that content need be put there for it to be read again.
func (f *FS) isFirm(n *node) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return n.logged && n.frame != 0 && n.frame <= f.firm.Load()
}

// records are those of everything dirty, and what the log had heard of it before. What has gone comes first: another
// node may have got its number. Holds mu.
func (f *FS) records() ([]byte, []heard) {
	var w, nodes writer
	before := make([]heard, 0, len(f.dirty))
	for n := range f.dirty {
		before = append(before, heard{n, n.logged, n.frame})
		switch {
		case n.nlink > 0:
			nodes.node(n)
			nodes.parts(n)
			n.logged = true
			if n.frame == 0 {
				n.frame = f.frame.Load() + 1
			}
		case n.logged:
			w = append(w, recordGone)
			w.num(n.id)
			n.logged = false
		}
	}
	w = append(w, nodes...)
	for _, o := range f.originals {
		w.original(o)
	}
	for k := range f.names {
		if k.dir.nlink > 0 && k.dir.changed {
			w.name(k)
		}
	}
	return w, before
}

// mark says that the log has to hear of a node. Holds mu.
func (f *FS) mark(n *node) {
	f.countNode(n)
	f.dirty[n] = struct{}{}
}

// replay does again what the log of a layer tells, and says whether it was
// closed in order.
func (f *FS) replay(d *dir) (clean bool, err error) {
	origins := map[string]*origin{".": f.root.from}
	err = d.frames(func(records []byte) error {
		clean = len(records) == 1 && records[0] == recordClean
		r := &reader{rest: records}
		for len(r.rest) > 0 {
			if !f.replayOne(r, origins) {
				return ErrDamaged
			}
		}
		return nil
	})
	return (clean || d.size == int64(len(magic))) && !d.moded && !d.torn, err
}

// replayOne does the next record, and says whether it made sense.
func (f *FS) replayOne(r *reader, origins map[string]*origin) bool {
	switch kind := r.kind(); kind {
	case recordClean, recordOriginal:
		r.skip(kind)
	case recordNode:
		var n node
		path, id := r.node(&n)
		if r.bad {
			return false
		}
		f.recall(&n, path, id, origins)
	case recordParts:
		id, p := r.parts()
		return !r.bad && f.recallParts(id, p)
	case recordGone:
		if n := f.nodes[r.num()]; n != nil {
			f.unhold(n)
			f.uncountNode(n)
			f.leave(n)
		}
	case recordName:
		dir, name, to := f.nodes[r.num()], r.text(), r.num()
		n := f.nodes[to]
		if r.bad || dir == nil || n == nil && to != 0 {
			return false
		}
		dir.setName(name, n)
	case recordUnname:
		dir, name := f.nodes[r.num()], r.text()
		if r.bad || dir == nil {
			return false
		}
		delete(dir.entries, name)
	default:
		return false
	}
	return !r.bad
}

// recall puts a node that the log tells of into the table.
func (f *FS) recall(n *node, path string, id identity, origins map[string]*origin) {
	old := f.nodes[n.id]
	if old == nil {
		old = &node{id: n.id, deeds: none, place: nowhere}
		if path != "" {
			old.from = originAt(origins, path)
			if !n.isDir() { // another may have had its place, and be known too
				old.from = &origin{dir: old.from.dir, name: old.from.name}
			}
			old.from.identity = f.home(id)
		}
		f.enter(old)
	} else if path == "" {
		old.from = nil // it was raised
	}
	f.unhold(old.own())
	ino := old.ino
	old.attr, old.place, old.target, old.xattrs = n.attr, n.place, n.target, n.xattrs
	if old.ino = ino; ino == 0 {
		old.ino = old.id
	}
	old.changed, old.logged = true, true
	old.frame = f.frame.Load()
	old.held, old.parts = n.held, nil
	old.ahead = n.held > f.up(n.size)
	f.hold(old)
	f.countNode(old)
	if n.id >= made {
		f.next = max(f.next, n.id+1)
	}
}

// originAt answers with the node of the tree below at path. Those above it are
// asked for their names only, so that nobody has to look at them.
func originAt(origins map[string]*origin, path string) *origin {
	if o := origins[path]; o != nil {
		return o
	}
	dir, name := ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	o := &origin{dir: originAt(origins, dir), name: name}
	origins[path] = o
	return o
}

// mend takes over what the files of the top layer know better than a log that was not
// closed: how long they are, and how much room they take. What else is there is put aside
// or removed, as a [finder] says. A file whose content is not there is empty, or what it
// showed from below: the power went before that was on the disk, or after it was removed and
// before the log was.
// Careful: nothing is removed that the log does not tell of.
func (f *FS) mend(careful bool) error {
	d, top := f.layers[f.top()], f.top()
	others, err := d.finder(careful)
	if err != nil {
		return err
	}
	found := map[uint64]bool{}
	err = d.contents(func(id uint64, st *kernel.Stat) error {
		n := f.nodes[id]
		if n == nil || !n.regular() || n.place != top && n.place != nowhere {
			if f.readOnly {
				return nil
			}
			return others.clear(id)
		}
		found[id] = true
		f.unhold(n)
		n.place, n.size, n.held = top, st.Size, st.Blocks*512
		if n.parts != nil && n.size < n.parts.shown() { // its length was not on the disk
			if err := f.lengthen(d, n); err != nil {
				return err
			}
		}
		n.ahead = n.held > f.up(n.size)
		f.hold(n)
		f.mark(n)
		return nil
	})
	if err != nil {
		return err
	}
	for id, n := range f.nodes {
		if n.regular() && n.place == top && !found[id] {
			f.unhold(n)
			if n.parts != nil {
				n.fallBack()
				f.mark(n)
				continue
			}
			n.place, n.size, n.held, n.ahead = nowhere, 0, 0, false
			f.mark(n)
		}
	}
	return nil
}

// lengthen has the content of a node be as long as what is shown in its holes.
func (f *FS) lengthen(d *dir, n *node) error {
	n.size = n.parts.shown()
	if f.readOnly {
		return nil
	}
	num, err := d.open(n.id, unix.O_RDWR, false)
	if err != nil {
		return err
	}
	return errors.Join(unix.Ftruncate(num, n.size), unix.Close(num))
}
