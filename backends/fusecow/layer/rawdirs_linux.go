package layer

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
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

// OpenDir lets the kernel keep the list: it knows of every change.
func (r raw) OpenDir(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	l := &r.f.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[uint64]*listing{}
	}
	l.next++
	l.all[l.next] = &listing{}
	out.Fh = l.next
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_CACHE_DIR
	return fuse.OK
}

func (r raw) ReleaseDir(in *fuse.ReleaseIn) {
	r.f.lists.mu.Lock()
	defer r.f.lists.mu.Unlock()
	delete(r.f.lists.all, in.Fh)
}

func (r raw) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return r.readDir(in, func(_ *node, e fuse.DirEntry) (bool, error) { return out.AddDirEntry(e), nil })
}

// ReadDirPlus is ReadDir and a Lookup of each name.
func (r raw) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f := r.f
	return r.readDir(in, func(dir *node, e fuse.DirEntry) (bool, error) {
		entry := out.AddDirLookupEntry(e)
		if entry == nil || e.Name == "." || e.Name == ".." {
			return entry != nil, nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		n, err := f.find(dir, e.Name)
		if err != nil || n == nil {
			return true, err // it has gone: the kernel asks again where it matters
		}
		f.entry(n, entry)
		return true, nil
	})
}

// readDir calls add with the names from an offset on until it has no room.
func (r raw) readDir(in *fuse.ReadIn, add func(*node, fuse.DirEntry) (bool, error)) fuse.Status {
	n, code := r.node(in.NodeId)
	if code != fuse.OK {
		return code
	}
	r.f.lists.mu.Lock()
	l := r.f.lists.all[in.Fh]
	r.f.lists.mu.Unlock()
	if l == nil {
		return fuse.EBADF
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.Offset == 0 {
		names, err := r.f.listOf(n)
		if err != nil {
			return status(err)
		}
		l.names = names
	}
	for i := in.Offset; i < uint64(len(l.names)); i++ {
		e := l.names[i]
		room, err := add(n, fuse.DirEntry{Name: e.Name, Ino: e.Ino, Mode: uint32(e.Type) << 12, Off: i + 1})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return status(err)
		}
		if !room {
			break
		}
	}
	return fuse.OK
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
