//go:build linux

package trial_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A pair is one thing twice: on the tested filesystem and on the plain disk.
type pair [2]int

const (
	tried = iota
	plain
)

const (
	maxSize  = 160 << 10 // of a file
	maxOpen  = 4         // handles per file
	maxFiles = 24        // per model, with and without a name
)

// A file is the expected state of an inode.
type file struct {
	number int
	data   []byte
	names  int
	open   []pair
	maps   [][2][]byte // shared, maxSize bytes from the start of the file
	// mapped: some of its pages may be dirty.
	mapped bool
	// touched: some changes are not synced. loose: after a crash it may be neither the old nor the new state.
	touched, loose bool
	synced         []byte
}

// A model is a directory of files in memory, with a pair of real directories.
type model struct {
	seed  uint64
	rnd   *rand.Rand
	dirs  [2]string // the pair of directories
	names map[string]*file
	files []*file // files with a name or open
	next  int
	// Names that were changed since the last fsync, and the names at that time.
	renamed map[string]bool
	before  map[string]*file
	history history
	pool    []byte
	done    int // number of operations
}

func newModel(seed uint64, dirs [2]string) *model {
	m := &model{
		seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), dirs: dirs, pool: make([]byte, 4*maxSize),
		names: map[string]*file{}, renamed: map[string]bool{}, before: map[string]*file{},
	}
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(m.pool) // never fails
	return m
}

// slots returns all possible names, in two directories.
func slots() (all []string) {
	for _, dir := range []string{"x", "y"} {
		for _, name := range "abcdef" {
			all = append(all, dir+"/"+string(name))
		}
	}
	return all
}

func (m *model) path(side int, name string) string { return filepath.Join(m.dirs[side], name) }

// populate creates the first files: some with content, some with holes, one with two names.
func (m *model) populate() {
	for i, name := range slots()[:8] {
		f := m.newFile()
		f.data = make([]byte, m.rnd.IntN(maxSize/2))
		if i%3 > 0 {
			m.fill(f.data[len(f.data)/3:])
		}
		m.name(name, f)
	}
	m.name("y/f", m.names["x/a"])
}

func (m *model) newFile() *file {
	m.next++
	f := &file{number: m.next, data: []byte{}}
	m.files = append(m.files, f)
	return f
}

func (m *model) name(name string, f *file) {
	m.names[name] = f
	f.names++
	m.renamed[name] = true
}

func (m *model) unname(name string) {
	f := m.names[name]
	delete(m.names, name)
	f.names--
	m.renamed[name] = true
	m.settle(f)
}

// settle drops a file without names, handles and mappings.
func (m *model) settle(f *file) {
	if f.names == 0 && len(f.open) == 0 {
		for len(f.maps) > 0 {
			m.unmapFirst(f)
		}
		m.files = slices.DeleteFunc(m.files, func(o *file) bool { return o == f })
	}
}

// fill takes bytes from a pool, because generating each is slow under the race detector.
func (m *model) fill(b []byte) { copy(b, m.pool[m.rnd.IntN(len(m.pool)-len(b)):]) }

// write writes the model to one directory, which is empty or has the two subdirectories only.
func (m *model) write(side int) error {
	first := map[*file]string{}
	for _, name := range slices.Sorted(maps.Keys(m.names)) {
		f, path := m.names[name], m.path(side, name)
		if old, ok := first[f]; ok {
			if err := os.Link(old, path); err != nil {
				return err
			}
			continue
		}
		first[f] = path
		if err := writeHoles(path, f.data); err != nil {
			return err
		}
	}
	return nil
}

// writeHoles skips pages of zeros.
func writeHoles(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	const page = 4096
	for at := 0; at < len(data); at += page {
		part := data[at:min(at+page, len(data))]
		if !zero(part) {
			if _, err := f.WriteAt(part, int64(at)); err != nil {
				return err
			}
		}
	}
	return f.Truncate(int64(len(data)))
}

var zeros [maxSize]byte

func zero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// again recreates the plain directory.
func (m *model) again() error {
	for _, dir := range []string{"x", "y"} {
		path := m.path(plain, dir)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	return m.write(plain)
}

// A saved is the state of a model at a time.
type saved struct {
	names map[string]int
	data  map[int][]byte
}

func (m *model) save() saved {
	s := saved{map[string]int{}, map[int][]byte{}}
	for name, f := range m.names {
		s.names[name], s.data[f.number] = f.number, bytes.Clone(f.data)
	}
	return s
}

// restore restores the model and the plain directory. No file may be open.
func (m *model) restore(s saved) error {
	m.names, m.files = map[string]*file{}, nil
	files := map[int]*file{}
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		n := s.names[name]
		if files[n] == nil {
			files[n] = &file{number: n, data: bytes.Clone(s.data[n])}
			if files[n].data == nil {
				files[n].data = []byte{}
			}
			m.files = append(m.files, files[n])
		}
		m.name(name, files[n])
	}
	m.note(0, 0, 0, "restore")
	m.settled()
	return m.again()
}

// settled marks everything as synced.
func (m *model) settled() {
	clear(m.renamed)
	m.before = maps.Clone(m.names)
	for _, f := range m.files {
		f.touched, f.loose, f.synced = false, false, nil
	}
}

// touch is called before a file changes; loose means that a crash may undo part of the change.
func (f *file) touch(loose bool) {
	if !f.touched {
		f.synced = bytes.Clone(f.data)
	}
	f.touched, f.loose = true, f.loose || loose
}

// closeAll closes all handles and mappings.
func (m *model) closeAll() {
	for _, f := range slices.Clone(m.files) {
		for len(f.maps) > 0 {
			m.unmapFirst(f)
		}
		for len(f.open) > 0 {
			m.close(f, 0)
		}
		f.mapped = false
	}
}

func (m *model) close(f *file, i int) {
	for _, fd := range f.open[i] {
		unix.Close(fd)
	}
	f.open = slices.Delete(f.open, i, i+1)
	m.settle(f)
}

func (m *model) unmapFirst(f *file) {
	for _, b := range f.maps[0] {
		_ = unix.Munmap(b)
	}
	f.maps = f.maps[1:]
}

// A difference is the failure of a trial.
type difference struct {
	file *file
	at   int // -1 means the whole file
	what string
}

func (d *difference) Error() string { return d.what }

// differ returns the first difference of two contents.
func (m *model) differ(f *file, off int, got, want []byte, what string) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return &difference{f, min(len(got), len(want)) + off, fmt.Sprintf("%s: %d bytes from %d on, want %d", what, len(got), off, len(want))}
	}
	at, n := 0, 0
	for i := range got {
		if got[i] != want[i] {
			if n == 0 {
				at = i
			}
			n++
		}
	}
	return &difference{f, off + at, fmt.Sprintf("%s: %d bytes differ, the first at %d: % x, want % x",
		what, n, off+at, got[at:min(at+8, len(got))], want[at:min(at+8, len(want))])}
}

// compare compares everything on both sides.
func (m *model) compare() error {
	for side, what := range []string{"the mount", "the plain directory"} {
		ids := map[*file]uint64{}
		for _, dir := range []string{"x", "y"} {
			if err := m.compareNames(side, dir); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(m.names)) {
			f := m.names[name]
			var st unix.Stat_t
			if err := unix.Lstat(m.path(side, name), &st); err != nil {
				return fmt.Errorf("%s: stat %s: %w", what, name, err)
			}
			if old, ok := ids[f]; ok && old != st.Ino {
				return &difference{f, 0, fmt.Sprintf("%s: the names of file %d have parted at %s", what, f.number, name)}
			}
			ids[f] = st.Ino
			if int(st.Nlink) != f.names || st.Size != int64(len(f.data)) {
				return &difference{f, min(int(st.Size), len(f.data)), fmt.Sprintf("%s: %s (file %d) has %d names and %d bytes, want %d and %d",
					what, name, f.number, st.Nlink, st.Size, f.names, len(f.data))}
			}
			got, err := os.ReadFile(m.path(side, name))
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if err := m.differ(f, 0, got, f.data, what+": "+name); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareNames compares a directory.
func (m *model) compareNames(side int, dir string) error {
	list, err := os.ReadDir(m.path(side, dir))
	if err != nil {
		return err
	}
	var got, want []string
	for _, e := range list {
		got = append(got, dir+"/"+e.Name())
	}
	for _, name := range slices.Sorted(maps.Keys(m.names)) {
		if strings.HasPrefix(name, dir+"/") {
			want = append(want, name)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("in %s are %q, want %q", dir, got, want)
	}
	return nil
}
