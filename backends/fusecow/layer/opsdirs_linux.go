package layer

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// listings holds the open directories. The list of names of an open directory is fixed at its first read and
// stays the same, whatever is removed later. The kernel may read only the rest of a list that it has cached
// in part, so an unread list is fixed just before its directory changes.
type listings struct {
	mu   sync.Mutex // taken after FS.mu
	next uint64
	all  map[uint64]*listing
	// unread are the open directories without a listing, by inode id.
	unread map[uint64][]*listing
}

type listing struct {
	mu    sync.Mutex // held by a reader; taken before FS.mu
	dir   uint64
	names atomic.Pointer[[]vfs.Entry]
}

// OpenDir opens the directory id for [FS.ReadDir] and returns a handle, which [FS.CloseDir] must close.
func (f *FS) OpenDir(id uint64) uint64 {
	l := &f.listings
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

// CloseDir closes list, the handle of an open directory that [FS.OpenDir] returned.
func (f *FS) CloseDir(list uint64) {
	l := &f.listings
	l.mu.Lock()
	defer l.mu.Unlock()
	if opened := l.all[list]; opened != nil {
		l.noteRead(opened)
		delete(l.all, list)
	}
}

// noteRead notes that the names of an open directory were read, so that they are fixed. The caller holds mu.
func (l *listings) noteRead(opened *listing) {
	rest := slices.DeleteFunc(l.unread[opened.dir], func(o *listing) bool { return o == opened })
	if l.unread[opened.dir] = rest; len(rest) == 0 {
		delete(l.unread, opened.dir)
	}
}

// snapshotListings reads the names of dir, which is about to change, for all who have it open but have read
// nothing yet. After an error each of these reads the names later. The caller holds FS.mu.
func (f *FS) snapshotListings(dir *inode) {
	l := &f.listings
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unread[dir.id]) == 0 {
		return
	}
	own, err := f.listLower(dir)
	if err != nil {
		return
	}
	all := dir.mergeListing(own)
	for _, opened := range l.unread[dir.id] {
		opened.names.CompareAndSwap(nil, &all)
	}
	delete(l.unread, dir.id)
}

// A Dir is the directory that [FS.ReadDir] lists; the callback add gets it, to look the names up in it.
type Dir struct {
	f *FS
	n *inode
}

// Lookup looks a name up in the directory that [FS.ReadDir] lists, as [FS.Lookup] does.
func (d Dir) Lookup(name string) (Entry, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	n, err := d.f.lookup(d.n, name)
	if err != nil || n == nil {
		return Entry{}, err
	}
	return d.f.entry(n), nil
}

// ReadDir calls add with the entries of the directory id from offset on, including "." and "..", until add
// returns room false. list is the result of OpenDir. If the filesystem is [FS.LowerOnly], list is ignored and
// no OpenDir is needed.
func (f *FS) ReadDir(list, id, offset uint64, add func(d Dir, e vfs.Entry, next uint64) (room bool, err error)) error {
	n, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	if f.LowerOnly() {
		return f.readDirLowerOnly(n, int64(offset), add)
	}
	f.listings.mu.Lock()
	l := f.listings.all[list]
	f.listings.mu.Unlock()
	if l == nil {
		return unix.EBADF
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset == 0 || l.names.Load() == nil {
		if err := f.readListing(n, l, offset == 0); err != nil {
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

// readListing reads the names of the open directory n into l, if it has none yet or if anew is set.
func (f *FS) readListing(n *inode, l *listing, anew bool) error {
	own, err := f.listLower(n)
	if err != nil {
		return err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := n.mergeListing(own)
	if anew {
		l.names.Store(&all)
	} else {
		l.names.CompareAndSwap(nil, &all)
	}
	f.listings.mu.Lock()
	defer f.listings.mu.Unlock()
	f.listings.noteRead(l)
	return nil
}

// listLower lists the lower directory of n. The list is empty if n is dirty and the lower directory is gone.
func (f *FS) listLower(n *inode) ([]vfs.Entry, error) {
	if !n.showsLower() {
		return nil, nil
	}
	own, err := f.lower.List(n.lower)
	if f.lowerGone(n, err) {
		return nil, nil
	}
	return own, err
}

// mergeListing returns the names of the directory n: own, the entries of its lower directory, in their order,
// then those of the layers. A changed lower entry keeps its position, because the kernel may have cached an
// earlier listing. The caller holds mu.
func (n *inode) mergeListing(own []vfs.Entry) []vfs.Entry {
	all := make([]vfs.Entry, 2, 2+len(own)+len(n.entries))
	all[0] = vfs.Entry{Name: ".", Ino: n.ino, Type: unix.DT_DIR}
	all[1] = vfs.Entry{Name: "..", Ino: n.ino, Type: unix.DT_DIR}
	listed := map[string]bool{}
	for _, e := range own {
		to, changed := n.entries[e.Name]
		switch {
		case !changed:
			all = append(all, e)
		case to != nil:
			all = append(all, to.entry(e.Name))
			listed[e.Name] = true
		}
	}
	above := len(all)
	for name, to := range n.entries {
		if to != nil && !listed[name] {
			all = append(all, to.entry(name))
		}
	}
	slices.SortFunc(all[above:], func(a, b vfs.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (n *inode) entry(name string) vfs.Entry {
	return vfs.Entry{Name: name, Ino: n.ino, Type: uint8(n.mode >> 12)}
}
