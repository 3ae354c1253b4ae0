package layer

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// The table of nodes: what enters it, what becomes changed, and what goes. Everything here
// holds mu. Errors are bare errnos or wrap one.

// adopt answers with the node for one of the tree below: the same whichever of
// its names it was found by, so that its names stay together when it changes.
func (f *FS) adopt(dir *origin, name string, st *kernel.Stat) *node {
	id := f.identityOf(st)
	no := f.number(&id)
	for _, n := range [...]*node{f.nodes[no], f.strays[id]} {
		if n != nil && n.nlink > 0 && n.from != nil && n.from.identity == id && n.kind() == st.Mode&unix.S_IFMT && f.shares(n, dir, name, st) {
			f.alias(n, dir, name)
			return n
		}
	}
	if f.nodes[no] != nil {
		no = f.next // the number was given to another one below, or it has got another name there since
		f.next++
	}
	n := &node{id: no, from: &origin{dir: dir, name: name, identity: id}, attr: attrOf(st), place: nowhere, deeds: none}
	if n.ino = no; n.regular() {
		n.place = below
	}
	f.enter(n)
	return n
}

// shares reports whether a name of the tree below, which leads to what a node is there, is one of the
// node's names: not where that was renamed there, for a node is found where it was found first.
func (f *FS) shares(n *node, dir *origin, name string, st *kernel.Stat) bool {
	if n.from.isAt(dir, name) {
		return true
	}
	if n.isDir() && f.Bare() { // mounted twice: it may be on one side here, on the other there
		return false
	}
	return n.changed && !n.isDir() && st.Nlink > 1 || f.leads(n.from)
}

// mostAliases bounds what is known of a node's further names, each of which takes memory.
const mostAliases = 8

// alias notes that a node was found by a further name of the tree below, which the kernel has to look up again
// when the first one is gone there.
func (f *FS) alias(n *node, dir *origin, name string) {
	if n.isDir() || n.from.isAt(dir, name) || len(f.aliases[n]) == mostAliases {
		return
	}
	for _, a := range f.aliases[n] {
		if a.isAt(dir, name) {
			return
		}
	}
	f.aliases[n] = append(f.aliases[n], &origin{dir: dir, name: name})
}

// leads reports whether the path of a node of the tree below still leads to it. Cost: three system calls, for
// who has a second name alone.
func (f *FS) leads(o *origin) bool {
	fd, err := kernel.OpenBeneathFD(f.lower, o.path(), unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP)
	}
	defer unix.Close(fd)
	st, err := kernel.Lstat(fd, "")
	return err != nil || f.identityOf(&st) == o.identity
}

// enter puts a node into the table, and leave takes it out.
func (f *FS) enter(n *node) {
	f.nodes[n.id] = n
	if n.from != nil && n.from.ino != 0 && n != f.root && n.id != f.number(&n.from.identity) {
		f.strays[n.from.identity] = n
	}
}

func (f *FS) leave(n *node) {
	delete(f.nodes, n.id)
	delete(f.aliases, n)
	if n.from != nil && f.strays[n.from.identity] == n {
		delete(f.strays, n.from.identity)
	}
}

// forget lets go of a node that the kernel has forgotten so often.
func (f *FS) forget(id, times uint64) {
	n := f.nodes[id]
	if n == nil || n == f.root {
		return
	}
	n.lookups -= min(times, n.lookups)
	f.settle(n)
}

// settle drops a node that neither the kernel nor a name needs.
func (f *FS) settle(n *node) {
	switch {
	case n.lookups > 0 || n == f.root:
	case n.nlink == 0:
		f.destroy(n)
	case !n.changed:
		f.leave(n)
		f.fds.drop(fdKey{place: n.place, id: n.id})
		f.fds.drop(dirKey(n.from))
	}
}

// destroy takes a node without a name away, and its content once the log has
// heard of that: a log must never name content that is not there.
func (f *FS) destroy(n *node) {
	f.leave(n)
	delete(f.loose, n)
	delete(f.removed, n.id)
	f.fds.drop(fdKey{place: n.place, id: n.id})
	f.fds.drop(dirKey(n.from))
	if n.parts != nil {
		for _, s := range n.parts.beneath {
			f.fds.drop(fdKey{place: s.place, id: n.id})
		}
	}
	f.uncountNode(n)
	if n.logged {
		f.dirty[n] = struct{}{}
	} else {
		delete(f.dirty, n)
	}
	switch {
	case n.place < 0 || n.place != f.top():
	case n.logged:
		f.garbage = append(f.garbage, remains{n.id, n.held})
	default:
		// A file that stays for want of this is removed when the layer is mended.
		_ = f.layers[n.place].remove(n.id)
		f.unhold(n)
	}
}

// change makes a node one that the table holds the truth about. EDQUOT: the log may tell
// of no more.
func (f *FS) change(n *node) error {
	if n.told != f.top() && !f.readOnly {
		if err := f.room(n.recordSize(), 1); err != nil {
			return err
		}
	}
	if !n.changed && !f.readOnly {
		if _, err := f.parent(n, f.change); err != nil {
			return err
		}
	}
	return f.changeAnyway(n)
}

// changeAnyway is change for what gives room back.
func (f *FS) changeAnyway(n *node) error {
	if f.readOnly {
		return unix.EROFS
	}
	if !n.changed {
		if err := f.load(n.own()); err != nil {
			return err
		}
		dir, err := f.parent(n, f.changeAnyway)
		if err != nil {
			return err
		}
		n.changed = true
		if dir != nil {
			f.put(dir, n.from.name, n)
		}
	}
	f.mark(n)
	return nil
}

// parent is the directory that a node of the tree below, which is about to change, is to
// be named in from now on, with all directories above it, and is changed for it; nil
// where there is none or it is named there already. For what is changed must be found
// by its name even when the tree below has another file there: people save files by
// renaming new ones into their place.
func (f *FS) parent(n *node, change func(*node) error) (*node, error) {
	if n.from == nil || n.from.dir == nil || n.nlink == 0 {
		return nil, nil //nolint:nilnil // as it says
	}
	dir, err := f.nodeOf(n.from.dir)
	if err != nil {
		return nil, err
	}
	if _, named := dir.entries[n.from.name]; named || dir.nlink == 0 {
		return nil, nil //nolint:nilnil // as it says
	}
	return dir, change(dir)
}

// nodeOf is the node of a directory of the tree below.
func (f *FS) nodeOf(o *origin) (*node, error) {
	if o.dir == nil {
		return f.root, nil
	}
	for _, n := range [...]*node{f.nodes[f.number(&o.identity)], f.strays[o.identity]} {
		if n != nil && n.from != nil && n.from.identity == o.identity && (n.from == o || n.from.isAt(o.dir, o.name)) {
			return n, nil
		}
	}
	st, err := f.statBelow(o.dir, o.name)
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.ESTALE
	}
	if err != nil {
		return nil, err
	}
	return f.adopt(o.dir, o.name, &st), nil
}
