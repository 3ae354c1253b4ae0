package layer

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// lists are directories that are being read. A list is made when it is read
// from the beginning, and stays as it was until then, whatever is removed
// meanwhile.
type lists struct {
	mu   sync.Mutex
	next uint64
	all  map[uint64]*listing
}

type listing struct {
	mu    sync.Mutex
	names []kernel.Entry
}

// OpenDir begins to read a directory: its list stays as it was when it was read from
// the beginning. The number is given back by [FS.CloseDir].
func (f *FS) OpenDir() uint64 {
	l := &f.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[uint64]*listing{}
	}
	l.next++
	l.all[l.next] = &listing{}
	return l.next
}

// CloseDir forgets the list of OpenDir.
func (f *FS) CloseDir(list uint64) {
	f.lists.mu.Lock()
	defer f.lists.mu.Unlock()
	delete(f.lists.all, list)
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
// included, until it has no room. The next offset is one more each time.
func (f *FS) ReadDir(list, id, offset uint64, add func(d Dir, e kernel.Entry, next uint64) (room bool, err error)) error {
	n, err := f.node(id)
	if err != nil {
		return err
	}
	f.lists.mu.Lock()
	l := f.lists.all[list]
	f.lists.mu.Unlock()
	if l == nil {
		return unix.EBADF
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset == 0 {
		if l.names, err = f.listOf(n); err != nil {
			return err
		}
	}
	for i := offset; i < uint64(len(l.names)); i++ {
		room, err := add(Dir{f, n}, l.names[i], i+1)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !room {
			break
		}
	}
	return nil
}

// listOf lists a directory: those of the tree below in its order, then those of
// the layers.
func (f *FS) listOf(n *node) ([]kernel.Entry, error) {
	var own []kernel.Entry
	if n.from != nil {
		d, err := f.directory(n.from)
		if err != nil {
			return nil, err
		}
		own, err = f.list(d)
		f.fds.put(d)
		if err != nil {
			return nil, err
		}
	}
	all := make([]kernel.Entry, 2, 2+len(own))
	all[0] = kernel.Entry{Name: ".", Ino: n.ino, Type: unix.DT_DIR}
	all[1] = kernel.Entry{Name: "..", Ino: n.ino, Type: unix.DT_DIR}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, e := range own {
		if _, changed := n.entries[e.Name]; !changed {
			all = append(all, e)
		}
	}
	above := len(all)
	for name, to := range n.entries {
		if to != nil {
			all = append(all, kernel.Entry{Name: name, Ino: to.ino, Type: uint8(to.mode >> 12)})
		}
	}
	slices.SortFunc(all[above:], func(a, b kernel.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
