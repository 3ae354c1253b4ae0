package layer

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// Everything here holds mu, but where it says otherwise. Errors are bare
// errnos or wrap one.

// longest is how many bytes a name may have, as on the filesystems of a disk: those of
// the tree below are looked up there. The kernel leaves it to a FUSE filesystem.
const longest = unix.NAME_MAX

// find answers with the node that a directory has under a name, nil: none.
func (f *FS) find(dir *node, name string) (*node, error) {
	if len(name) > longest {
		return nil, unix.ENAMETOOLONG
	}
	if n, ok := dir.entries[name]; ok {
		return n, nil
	}
	if !dir.showsBelow() {
		return nil, nil
	}
	st, err := f.statBelow(dir.from, name)
	if errors.Is(err, fs.ErrNotExist) || f.lost(dir, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return f.adopt(dir.from, name, &st), nil
}

// showsBelow reports whether a directory shows what the tree below has in it: one without a name is empty.
func (n *node) showsBelow() bool { return n.from != nil && n.nlink > 0 }

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
	return n.from.isAt(dir, name) || n.changed && !n.isDir() && st.Nlink > 1 || f.leads(n.from)
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

// setName makes a directory have n under a name, or nothing.
func (n *node) setName(name string, to *node) {
	if n.own().entries == nil {
		n.entries = map[string]*node{}
	}
	n.entries[name] = to
}

// put gives n a name in a changed directory.
func (f *FS) put(dir *node, name string, n *node) {
	f.keepLists(dir)
	dir.setName(name, n)
	f.names[nameKey{dir, name}] = struct{}{}
	f.pending.Add(int64(nameRecord + len(name)))
}

// take takes a name away from a changed directory, hidden where the tree below
// has it too.
func (f *FS) take(dir *node, name string, hide bool) {
	f.keepLists(dir)
	if hide {
		dir.setName(name, nil)
	} else {
		delete(dir.entries, name)
	}
	f.names[nameKey{dir, name}] = struct{}{}
	f.pending.Add(int64(nameRecord + len(name)))
}

// hides says whether a name that goes must be hidden.
func (f *FS) hides(dir *node, name string, n *node) (bool, error) {
	if dir.from == nil {
		return false, nil
	}
	if n.isDir() && n.from != nil && n.from.isAt(dir.from, name) { // or it would be taken for there, where that is lost
		return true, nil
	}
	has, err := f.hasBelow(dir.from, name)
	if f.lost(dir, err) {
		return false, nil
	}
	return has, err
}

// empty reports whether a directory has no names.
func (f *FS) empty(dir *node) (bool, error) {
	for _, n := range dir.entries {
		if n != nil {
			return false, nil
		}
	}
	if dir.from == nil {
		return true, nil
	}
	own, err := f.list(dir.from)
	if f.lost(dir, err) {
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

// list reads a directory of the tree below, by a descriptor of its own: the
// place in the list belongs to the descriptor.
func (f *FS) list(o *origin) ([]kernel.Entry, error) {
	d, err := f.directory(o)
	if err != nil {
		return nil, err
	}
	defer f.fds.put(d)
	own, err := openList(d)
	if errors.Is(err, fs.ErrNotExist) { // it was removed since
		err = f.staleBelow(o)
	}
	if err != nil {
		return nil, err
	}
	defer own.Close()
	return kernel.Entries(int(own.Fd()))
}

// make adds a node of a mode to a directory, or, with an empty name, none yet.
func (f *FS) make(dir *node, name string, mode, uid, gid, umask uint32) (*node, error) {
	if name != "" {
		old, err := f.find(dir, name)
		if err != nil {
			return nil, err
		}
		if old != nil {
			return nil, unix.EEXIST
		}
	}
	if dir.nlink == 0 {
		return nil, unix.ENOENT
	}
	err := f.room(int64(nodeRecord+nameRecord+len(name)), 1)
	if err == nil {
		err = f.change(dir)
	}
	if err != nil {
		return nil, err
	}
	t := now()
	n := &node{id: f.next, changed: true, place: nowhere, deeds: &deeds{told: nowhere}, attr: attr{
		ino: f.next, mode: mode, uid: uid, gid: gid, nlink: 1, atime: t, mtime: t, ctime: t,
	}}
	f.next++
	if dir.mode&unix.S_ISGID != 0 {
		if n.gid = dir.gid; n.isDir() {
			n.mode |= unix.S_ISGID
		}
	}
	f.inherit(dir, n, umask)
	f.nodes[n.id] = n
	f.mark(n)
	if name == "" {
		n.nlink = 0
		f.loose[n] = struct{}{}
		return n, nil
	}
	if n.isDir() {
		n.nlink = 2
		addSub(dir, 1)
	}
	f.put(dir, name, n)
	dir.mtime, dir.ctime = t, t
	return n, nil
}

// addSub counts the directories in one, on a filesystem that counts them.
func addSub(dir *node, by int) {
	if dir.nlink > 1 {
		dir.nlink = uint32(int(dir.nlink) + by)
	}
}

// link gives a node one name more.
func (f *FS) link(n, dir *node, name string) error {
	old, err := f.find(dir, name)
	if err != nil {
		return err
	}
	if old != nil {
		return unix.EEXIST
	}
	if dir.nlink == 0 {
		return unix.ENOENT
	}
	if err := errors.Join(f.room(int64(nameRecord+len(name)), 0), f.change(n), f.change(dir)); err != nil {
		return err
	}
	f.put(dir, name, n)
	n.nlink++
	delete(f.loose, n)
	n.ctime = now()
	dir.mtime, dir.ctime = n.ctime, n.ctime
	return nil
}

// unlink takes a name away, that of a directory with rmdir.
func (f *FS) unlink(dir *node, name string, rmdir bool) error {
	n, err := f.find(dir, name)
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
	if err := f.mayGo(n); err != nil {
		return err
	}
	hide, err := f.hides(dir, name, n)
	if err != nil {
		return err
	}
	if err := f.changeAnyway(dir); err != nil {
		return err
	}
	f.take(dir, name, hide)
	if rmdir {
		addSub(dir, -1)
	}
	dir.mtime = now()
	dir.ctime = dir.mtime
	f.lessOne(n)
	return nil
}

// mayGo says whether one name of a node may be taken away, and makes ready for
// it what can go wrong.
func (f *FS) mayGo(n *node) error {
	if n.isDir() {
		empty, err := f.empty(n)
		if err == nil && !empty {
			err = unix.ENOTEMPTY
		}
		return err
	}
	if n.nlink > 1 {
		return f.changeAnyway(n)
	}
	return nil
}

// lessOne takes one name of a node away.
func (f *FS) lessOne(n *node) {
	n.ctime = now()
	if n.isDir() || n.nlink <= 1 {
		n.own().entries = nil
		n.nlink = 0
		f.loose[n] = struct{}{}
		if n.isDir() {
			f.removed[n.id] = struct{}{}
		}
		if n.logged {
			f.mark(n)
		}
		f.settle(n)
		return
	}
	n.nlink--
	f.mark(n)
}

// rename moves a name; it never moves what is beneath it.
func (f *FS) rename(from *node, name string, to *node, toName string, flags uint32) error {
	n, err := f.find(from, name)
	if err != nil {
		return err
	}
	old, err := f.find(to, toName)
	if err != nil {
		return err
	}
	exchange := flags&unix.RENAME_EXCHANGE != 0
	switch {
	case flags&^(unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE) != 0:
		return unix.EINVAL
	case n == nil || exchange && old == nil || to.nlink == 0:
		return unix.ENOENT
	case old != nil && flags&unix.RENAME_NOREPLACE != 0:
		return unix.EEXIST
	case n == old:
		return nil
	}
	if old != nil && !exchange {
		switch {
		case old.isDir() && !n.isDir():
			return unix.EISDIR
		case !old.isDir() && n.isDir():
			return unix.ENOTDIR
		}
		if err := f.mayGo(old); err != nil {
			return err
		}
	}
	hide, err := f.hides(from, name, n)
	if err != nil {
		return err
	}
	if err := errors.Join(f.change(n), f.change(from), f.change(to)); err != nil {
		return err
	}
	if exchange {
		if err := f.change(old); err != nil {
			return err
		}
		f.put(from, name, old)
		old.ctime = now()
	} else {
		f.take(from, name, hide)
	}
	f.put(to, toName, n)
	count(from, to, n, old, exchange)
	n.ctime = now()
	for _, dir := range []*node{from, to} {
		dir.mtime, dir.ctime = n.ctime, n.ctime
	}
	if old != nil && !exchange {
		if old.place == below && old.nlink <= 1 { // as an editor does
			f.noteOriginal(f.original(old, f.layers[f.top()]))
		}
		f.lessOne(old)
	}
	return nil
}

// count keeps the numbers of directories in directories after a rename.
func count(from, to, n, old *node, exchange bool) {
	if n.isDir() {
		addSub(from, -1)
		addSub(to, 1)
	}
	if old != nil && old.isDir() {
		addSub(to, -1)
		if exchange {
			addSub(from, 1)
		}
	}
}
