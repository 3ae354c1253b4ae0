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
