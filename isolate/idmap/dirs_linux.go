package idmap

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// listings holds, for each directory that a process has open, its list of names. A list is made when the
// directory is read from its beginning, and stays the same until the next such read.
type listings struct {
	mu   sync.Mutex
	next uint64
	all  map[uint64]*listing
}

type listing struct {
	mu    sync.Mutex
	names []vfs.Entry
}

// OpenDir answers the kernel's request to open a directory, and disables the kernel's cache for its listing:
// the kernel may drop a part of a cached listing, and a later read of that part need not fit the other parts.
func (s *server) OpenDir(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	l := &s.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[uint64]*listing{}
	}
	l.next++
	l.all[l.next] = &listing{}
	out.Fh = l.next
	return fuse.OK
}

func (s *server) ReleaseDir(in *fuse.ReleaseIn) {
	s.lists.mu.Lock()
	defer s.lists.mu.Unlock()
	delete(s.lists.all, in.Fh)
}

func (s *server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return s.readDir(in, func(_ int, e fuse.DirEntry) bool { return out.AddDirEntry(e) })
}

// ReadDirPlus answers the kernel's READDIRPLUS request: it lists a directory like ReadDir, and looks each
// name up. If a lookup fails, the kernel repeats it when needed.
func (s *server) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return s.readDir(in, func(dir int, e fuse.DirEntry) bool {
		entry := out.AddDirLookupEntry(e)
		if entry == nil || e.Name == "." || e.Name == ".." {
			return entry != nil
		}
		fd, err := openPath(dir, e.Name)
		if err == nil {
			err = s.entry(fd, e.Name, entry)
		}
		if err != nil {
			*entry = fuse.EntryOut{}
		}
		return true
	})
}

// readDir calls add with the entries of a directory until add returns false. in, the kernel's request, says
// which directory and from which offset on; dir is a descriptor of it.
func (s *server) readDir(in *fuse.ReadIn, add func(dir int, e fuse.DirEntry) bool) fuse.Status {
	s.lists.mu.Lock()
	l := s.lists.all[in.Fh]
	s.lists.mu.Unlock()
	if l == nil {
		return fuse.EBADF
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return status(s.t.with(in.NodeId, func(_ *inode, dir int) error {
		if in.Offset == 0 {
			if err := l.read(dir); err != nil {
				return err
			}
		}
		for i := in.Offset; i < uint64(len(l.names)); i++ {
			e := l.names[i]
			if !add(dir, fuse.DirEntry{Name: e.Name, Ino: e.Ino, Mode: uint32(e.Type) << 12, Off: i + 1}) {
				break
			}
		}
		return nil
	}))
}

func (l *listing) read(dir int) error {
	st, err := vfs.Lstat(dir, "")
	if err != nil {
		return err
	}
	fd, err := reopen(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	names, err := vfs.Entries(fd)
	l.names = append([]vfs.Entry{{Name: ".", Ino: st.Ino, Type: unix.DT_DIR}, {Name: "..", Ino: st.Ino, Type: unix.DT_DIR}}, names...)
	return err
}
