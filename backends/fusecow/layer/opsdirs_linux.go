package layer

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// lists are directories that are open to be read. The list of one stays as it was when
// it was first read, whatever is removed meanwhile. Where the kernel has kept the first
// part of a list from another time, it asks for the rest alone: so that both fit, one that
// was not read yet is made just before its directory changes.
type lists struct {
	mu   sync.Mutex // taken after FS.mu
	next uint64
	all  map[uint64]*listing
	// unread are those without a list, by their directory.
	unread map[uint64][]*listing
}

type listing struct {
	mu    sync.Mutex // held by who reads; taken before FS.mu
	dir   uint64
	names atomic.Pointer[[]kernel.Entry]
}

// OpenDir begins to read a directory. The number is given back by [FS.CloseDir].
func (f *FS) OpenDir(id uint64) uint64 {
	l := &f.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all, l.unread = map[uint64]*listing{}, map[uint64][]*listing{}
	}
	l.next++
	opened := &listing{dir: id}
	l.all[l.next] = opened
	l.unread[id] = append(l.unread[id], opened)
	return l.next
}

// CloseDir forgets the list of OpenDir.
func (f *FS) CloseDir(list uint64) {
	l := &f.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if opened := l.all[list]; opened != nil {
		l.read(opened)
		delete(l.all, list)
	}
}

// read takes one from those that are without a list. Holds mu.
func (l *lists) read(opened *listing) {
	rest := slices.DeleteFunc(l.unread[opened.dir], func(o *listing) bool { return o == opened })
	if l.unread[opened.dir] = rest; len(rest) == 0 {
		delete(l.unread, opened.dir)
	}
}

// keepLists makes the lists of who has a directory open that is about to change, and has
// not read it. Where that goes wrong he will hear it when he reads. Holds FS.mu.
func (f *FS) keepLists(dir *node) {
	l := &f.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unread[dir.id]) == 0 {
		return
	}
	own, err := f.listBelow(dir)
	if err != nil {
		return
	}
	all := dir.list(own)
	for _, opened := range l.unread[dir.id] {
		opened.names.CompareAndSwap(nil, &all)
	}
	delete(l.unread, dir.id)
}

// A Dir is a directory that is being read.
type Dir struct {
	f *FS
	n *node
}

// Lookup is [FS.Lookup] of one of its names.
func (d Dir) Lookup(name string) (Entry, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	n, err := d.f.find(d.n, name)
	if err != nil || n == nil {
		return Entry{}, err
	}
	return d.f.entry(n), nil
}

// ReadDir calls add with the names of a directory, from an offset on, "." and ".."
// included, until it has no room. Where the filesystem is [FS.Bare] it takes no OpenDir.
func (f *FS) ReadDir(list, id, offset uint64, add func(d Dir, e kernel.Entry, next uint64) (room bool, err error)) error {
	n, err := f.node(id)
	if err != nil {
		return err
	}
	if f.Bare() {
		return f.readBare(n, int64(offset), add)
	}
	f.lists.mu.Lock()
	l := f.lists.all[list]
	f.lists.mu.Unlock()
	if l == nil {
		return unix.EBADF
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset == 0 || l.names.Load() == nil {
		if err := f.makeList(n, l, offset == 0); err != nil {
			return err
		}
	}
	names := *l.names.Load()
	for i := offset; i < uint64(len(names)); i++ {
		room, err := add(Dir{f, n}, names[i], i+1)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !room {
			break
		}
	}
	return nil
}

// makeList makes the list of an open directory, anew or where there is none.
func (f *FS) makeList(n *node, l *listing, anew bool) error {
	own, err := f.listBelow(n)
	if err != nil {
		return err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := n.list(own)
	if anew {
		l.names.Store(&all)
	} else {
		l.names.CompareAndSwap(nil, &all)
	}
	f.lists.mu.Lock()
	defer f.lists.mu.Unlock()
	f.lists.read(l)
	return nil
}

// listBelow lists what the tree below has of a directory: nothing, where it has lost one that was changed.
func (f *FS) listBelow(n *node) ([]kernel.Entry, error) {
	if !n.showsBelow() {
		return nil, nil
	}
	own, err := f.list(n.from)
	if f.lost(n, err) {
		return nil, nil
	}
	return own, err
}

// list puts together what the tree below has of a directory, in its order, and then what is
// in the layers alone. What has changed keeps its place: the kernel may have the list of
// before. Holds mu.
func (n *node) list(own []kernel.Entry) []kernel.Entry {
	all := make([]kernel.Entry, 2, 2+len(own)+len(n.entries))
	all[0] = kernel.Entry{Name: ".", Ino: n.ino, Type: unix.DT_DIR}
	all[1] = kernel.Entry{Name: "..", Ino: n.ino, Type: unix.DT_DIR}
	placed := map[string]bool{}
	for _, e := range own {
		to, changed := n.entries[e.Name]
		switch {
		case !changed:
			all = append(all, e)
		case to != nil:
			all = append(all, to.entry(e.Name))
			placed[e.Name] = true
		}
	}
	above := len(all)
	for name, to := range n.entries {
		if to != nil && !placed[name] {
			all = append(all, to.entry(name))
		}
	}
	slices.SortFunc(all[above:], func(a, b kernel.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (n *node) entry(name string) kernel.Entry {
	return kernel.Entry{Name: name, Ino: n.ino, Type: uint8(n.mode >> 12)}
}
