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
)

// A Place is one for a sandbox that runs. It is given back by Close, or by the end of
// the process that has it.
type Place struct {
	mu sync.Mutex
	f  *os.File // nil once it is given back, or handed on
	n  int
	// path is its file.
	path string
}

const (
	placePrefix = "place-"
	// spares is how many files of places stay when they are given back: to make a file
	// for each would cost more than all else (ext4 searches long for its inode).
	spares = 16
	// recordSize is more than any record needs: it is written over in one piece.
	recordSize = 160
)

// A record is what a place's file says.
type record struct {
	Version int `json:"version"`
	// Place is the number in the file's name.
	Place int `json:"place"`
	Ask
}

func (b *Book) place(n int) string { return filepath.Join(b.dir, placePrefix+strconv.Itoa(n)) }

// take takes a place that nobody has.
func (b *Book) take(a Ask) (*Place, error) {
	for tries := 0; ; tries++ {
		n := tries
		if tries < spares { // not all begin with the same one
			n = (tries + os.Getpid()) % spares
		}
		f, err := b.lock(b.place(n), syscall.LOCK_EX)
		if err != nil {
			return nil, failed(err)
		}
		if f == nil {
			continue
		}
		p := &Place{f: f, n: n, path: b.place(n)}
		if err := p.Set(a); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		return p, nil
	}
}

// lock opens a file, makes it where there is none, and locks it; nil where another has
// it. The directory is made where there is none: not the state directory, which may just
// have been removed.
func (b *Book) lock(path string, how int) (*os.File, error) {
	for made := false; ; {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, fs.ErrNotExist) && !made {
			if err := os.Mkdir(b.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			made = true
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := vfs.Flock(f, how|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, nil //nolint:nilnil // another has it
			}
			return nil, err
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(int(f.Fd()), &st); err != nil || st.Nlink > 0 {
			return f, err
		}
		f.Close() // it was removed between the opening and the locking
	}
}

// Set says that the sandbox may now come to use this much.
func (p *Place) Set(a Ask) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f == nil {
		return nil
	}
	text, err := json.Marshal(record{Version: 1, Place: p.n, Ask: a})
	if err == nil {
		was, now := make([]byte, recordSize), fmt.Appendf(nil, "%-*s\n", recordSize-1, text)
		// Most sandboxes ask for the same: to read costs a tenth of what writing does.
		if _, rerr := p.f.ReadAt(was, 0); rerr != nil || !bytes.Equal(was, now) {
			_, err = p.f.WriteAt(now, 0)
		}
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// Held reports whether it is there, and not given back or handed over.
func (p *Place) Held() bool { return p != nil && p.f != nil }

// File is what a process must have open to have the place too, nil where it is given
// back.
func (p *Place) File() *os.File { return p.f }

// HandOver leaves the place to another process that has its file open.
func (p *Place) HandOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f != nil {
		p.f.Close()
		p.f = nil
	}
}

// Inherit is the place that this process was given by its starter, as a descriptor.
func Inherit(fd int) (*Place, error) {
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
	return &Place{f: f, n: r.Place, path: path}, nil
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

// Close gives the place back. Closing again, or nil, is harmless.
func (p *Place) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f == nil {
		return nil
	}
	var err error
	if p.n >= spares {
		err = os.Remove(p.path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // with the state directory
		}
	}
	vfs.Unlock(p.f)
	p.f = nil
	return err
}

// given lists what the places are given for. What cannot be read is a place that is just
// taken, and counts as one that asks for nothing.
func (b *Book) given() ([]Ask, error) {
	names, err := b.names(placePrefix)
	if err != nil {
		return nil, err
	}
	var list []Ask
	for _, name := range names {
		f, err := os.Open(filepath.Join(b.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // given back meanwhile
		}
		if err != nil {
			return nil, err
		}
		err = vfs.Flock(f, syscall.LOCK_SH|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			r, _ := read(f)
			list, err = append(list, r.Ask), nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// names lists the files with a prefix.
func (b *Book) names(prefix string) ([]string, error) {
	dir, err := os.Open(b.dir)
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
