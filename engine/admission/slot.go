package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Slot is the permission to run one sandbox: a locked file that contains the sandbox's limits. Close gives
// the slot back, and so does the end of the process that has it.
type Slot struct {
	mu sync.Mutex
	f  *os.File // nil after Close or HandOver
	n  int
	// path is the path of the slot's file.
	path string
}

const (
	placePrefix = "place-"
	// spares is how many files of free slots (permissions to run a sandbox) stay for reuse, because creating
	// a file is slow (ext4 searches long for an inode). The file of a slot with a higher number is deleted
	// when the slot is given back.
	spares = 16
	// recordSize is the fixed size in bytes of a slot file's content, larger than any content can be, so that
	// one write replaces it.
	recordSize = 160
)

// A record is the JSON content of a slot's file: the limits of the running sandbox for which the slot
// reserves capacity of the host.
type record struct {
	Version int `json:"version"`
	// Place is the number in the file's name.
	Place int `json:"place"`
	Request
}

func (c *Controller) place(n int) string { return filepath.Join(c.dir, placePrefix+strconv.Itoa(n)) }

// take makes a slot for a sandbox with the limits a: it locks the file of a free slot, or a new one, and
// writes the limits into it. The caller closes the slot.
func (c *Controller) take(a Request) (*Slot, error) {
	for tries := 0; ; tries++ {
		n := tries
		if tries < spares { // spreads processes over the slots
			n = (tries + os.Getpid()) % spares
		}
		f, err := c.lock(c.place(n))
		if err != nil {
			return nil, failed(err)
		}
		if f == nil {
			continue
		}
		p := &Slot{f: f, n: n, path: c.place(n)}
		if err := p.Set(a); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		return p, nil
	}
}

// lock opens the file at path, creates it if it does not exist, and locks it. It returns nil if another
// process has the lock. It creates the directory of the slots, but not the state directory, which may just
// have been removed.
func (c *Controller) lock(path string) (*os.File, error) {
	for made := false; ; {
		f, err := vfs.OpenAt(unix.AT_FDCWD, path, unix.O_RDWR|unix.O_CREAT, 0o600)
		if errors.Is(err, fs.ErrNotExist) && !made {
			if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			made = true
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := vfs.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, nil //nolint:nilnil // another process has it
			}
			return nil, err
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(int(f.Fd()), &st); err != nil || st.Nlink > 0 {
			return f, err
		}
		f.Close() // the file was removed between open and lock
	}
}

// Set writes the limits a, to which the user changed those of the running sandbox, into the slot's file. It
// does nothing after Close or HandOver.
func (s *Slot) Set(a Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f == nil {
		return nil
	}
	was, now := make([]byte, recordSize), record{Version: 1, Place: s.n, Request: a}.content()
	// Most sandboxes have the same request, and reading costs a tenth of writing.
	if _, err := s.f.ReadAt(was, 0); err == nil && bytes.Equal(was, now) {
		return nil
	}
	if _, err := s.f.WriteAt(now, 0); err != nil {
		return failed(err)
	}
	return nil
}

// content returns r as the content of a slot's file: JSON, filled up with spaces. Package json would examine the type
// by reflection first, which each start of a sandbox would pay.
func (r record) content() []byte {
	text := fmt.Sprintf(`{"version":%d,"place":%d,"memory":%d,"disk":%d,"processors":%s}`,
		r.Version, r.Place, r.Memory, r.Disk, strconv.FormatFloat(r.Processors, 'f', -1, 64))
	return fmt.Appendf(nil, "%-*s\n", recordSize-1, text)
}

// Held reports whether this process still has the slot, the permission to run a sandbox: it was neither given
// back nor handed over. s may be nil.
func (s *Slot) Held() bool { return s != nil && s.f != nil }

// File returns the open file that another process must inherit to have the slot too, or nil after Close or
// HandOver. The Slot still owns and closes it.
func (s *Slot) File() *os.File { return s.f }

// HandOver closes, in this process, the file of the slot, the permission to run a sandbox. The slot stays in
// use by the other process that has inherited the file.
func (s *Slot) HandOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f != nil {
		s.f.Close()
		s.f = nil
	}
}

// Inherit returns the slot, a reservation of the host's capacity, whose open file the parent process passed
// as descriptor fd. The caller closes the slot.
func Inherit(fd int) (*Slot, error) {
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "place")
	path, err := vfs.PathOf(f)
	var r record
	if err == nil {
		r, err = read(f)
	}
	if err != nil {
		f.Close()
		return nil, failed(err)
	}
	return &Slot{f: f, n: r.Place, path: path}, nil
}

func read(f *os.File) (r record, err error) {
	text := make([]byte, recordSize)
	n, err := f.ReadAt(text, 0)
	if n == recordSize {
		err = nil
	}
	if err == nil {
		err = json.Unmarshal(text[:n], &r)
	}
	return r, err
}

// Close gives the slot, the permission to run a sandbox, back, so that another sandbox may run. It does
// nothing the second time, or if s is nil.
func (s *Slot) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f == nil {
		return nil
	}
	var err error
	if s.n >= spares {
		err = os.Remove(s.path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // removed with the state directory
		}
	}
	vfs.Unlock(s.f)
	s.f = nil
	return err
}

// given returns the limits of all running sandboxes, which it reads from the files of their slots. An
// unreadable file counts as a sandbox without limits, because another process is just writing it.
func (c *Controller) given() ([]Request, error) {
	names, err := c.names(placePrefix)
	if err != nil {
		return nil, err
	}
	var list []Request
	for _, name := range names {
		f, err := os.Open(filepath.Join(c.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // given back meanwhile
		}
		if err != nil {
			return nil, err
		}
		err = vfs.Flock(f, syscall.LOCK_SH|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			r, _ := read(f)
			list, err = append(list, r.Request), nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// names lists the files with the prefix "place-" (the slots of running sandboxes) or "wait-" (the tickets of
// waiting ones) in the directory of the controller.
func (c *Controller) names(prefix string) ([]string, error) {
	dir, err := os.Open(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}
