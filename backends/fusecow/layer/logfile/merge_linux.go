package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Stack lists the layers (directories with changes) of which a filesystem is made, the oldest first. It is
// the input of [Merge].
type Stack struct {
	Layers []string // paths
	// Indexes holds, for each of Layers, the highest index that it occupies, in rising order: a layer that
	// [Merge] made occupies the indexes of the layers it replaced. nil means one index each.
	Indexes []int
}

// Index returns the highest layer index that Layers[i] occupies. Records name a layer by its index; a merged
// layer occupies those of all layers that it replaces.
func (s *Stack) Index(i int) Index {
	if s.Indexes == nil {
		return Index(i)
	}
	return Index(s.Indexes[i])
}

// Above returns the lowest layer index above the first n layers of s, where the next layer begins. It is n
// unless one of them is merged, since that occupies the indexes of all layers that it replaces.
func (s *Stack) Above(n int) Index {
	if n == 0 {
		return 0
	}
	return s.Index(n-1) + 1
}

// ErrNotMergeable means that [Merge] cannot combine these layers, for a reason that it names.
var ErrNotMergeable = errors.New("the layers cannot be merged")

// Merge combines the layers s.Layers[from:to] into one new layer at path, which must not exist, with the same
// effect above the older layers. It is for stacks in which no snapshot needs a state in between. The new
// layer occupies all indexes of the merged ones, and its content counts at the highest of them (see
// Stack.Indexes), so that layers above it stay valid. The merged layers stay as well: content files get a
// second link in the new layer. Everything is on stable storage when Merge returns.
//
// Cost: reading the logs of these layers and of those below, and a link(2) for each content file that is
// still needed. Errors: ErrNotMergeable (a sparse upper has its sources in several of the layers, recovery
// moved a file of one to found/, or the filesystem allows no further links), [ErrDamaged], and those of
// files. After an error a part may remain at path, without a log and hence not a layer.
func Merge(s Stack, from, to int, path string) error {
	m := &merger{Stack: s, from: from, to: to, path: path, Digest: NewDigest(), originalIn: map[string]string{}}
	err := os.MkdirAll(path+"/data", 0o700)
	if err == nil {
		err = m.read()
	}
	var records Writer
	if err == nil {
		records, err = m.records()
	}
	if err == nil {
		err = m.write(records)
	}
	if err != nil {
		return fmt.Errorf("merging into %s: %w", path, err)
	}
	return nil
}

type merger struct {
	Stack
	from, to int
	path     string
	*Digest
	originalIn map[string]string // layer with the copy of an original, by path in the layer
}

// read replays the logs of the layers to merge, the oldest first, into the merger's Digest, the final state
// that they describe. ErrNotMergeable: recovery set aside a file (found/) or a damaged log in a layer, or two
// copies of files from before the fork changed them have the same name.
func (m *merger) read() error {
	taken := false
	for i := m.from; i < m.to; i++ {
		if err := m.checkSetAside(m.Layers[i]); err != nil {
			return err
		}
		originals := len(m.originals)
		err := readRecords(m.Layers[i], func(kind byte, r *Reader) {
			before := r.rest
			if m.Add(kind, r); len(m.originals) == originals {
				return
			}
			originals = len(m.originals)
			if o := NewReader(before).Original(); o.Copy > 0 {
				taken = taken || m.originalIn[o.contentPath()] != "" // another original has the same name
				m.originalIn[o.contentPath()] = m.Layers[i]
			}
		})
		if err == nil && taken {
			err = ErrNotMergeable
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSetAside returns ErrNotMergeable if recovery moved files of the layer at path to found/, or saved a
// damaged log: a merged layer would lose them.
func (m *merger) checkSetAside(path string) error {
	for _, pattern := range []string{"/found", "/log.damaged*"} {
		if list, err := filepath.Glob(escapeGlob(path) + pattern); err != nil || len(list) > 0 {
			return errors.Join(ErrNotMergeable, err)
		}
	}
	return nil
}

// records returns the log records of the layer that several are merged into. It also links into that layer
// the content files that these records name.
func (m *merger) records() (Writer, error) {
	needed := NewDigest()
	for _, path := range m.Layers[:m.from] {
		if err := readRecords(path, func(kind byte, r *Reader) { m.Need(needed, kind, r) }); err != nil {
			return nil, err
		}
	}
	first, last := m.Above(m.from), m.Index(m.to-1)
	for id, l := range m.inodes {
		n := NewReader(l.record).Inode()
		if l.sparse != nil {
			_, p := NewReader(l.sparse).Sparse()
			if slices.ContainsFunc(p.Sources, func(s Source) bool { return s.Layer >= first }) {
				return nil, ErrNotMergeable
			}
		}
		if n.Layer < first {
			continue
		}
		if err := m.link(m.layerAt(n.Layer), ContentPath(id)); err != nil {
			return nil, err
		}
		n.Layer = last
		var w Writer
		w.Inode(&n)
		l.record = w[1:]
		m.inodes[id] = l
	}
	for name, layer := range m.originalIn {
		if err := m.link(layer, name); err != nil {
			return nil, err
		}
	}
	return m.Digest.Records(needed), m.linkUnlogged()
}

// linkUnlogged links content files that no log records yet into the merged layer. Such a file had no name
// when its layer was frozen (O_TMPFILE), and may have got one since.
func (m *merger) linkUnlogged() error {
	for _, path := range m.Layers[m.from:m.to] {
		d, err := Open(path, false)
		if err != nil {
			return err
		}
		err = d.Contents(func(id uint64, _ *vfs.Stat) error {
			if _, recorded := m.inodes[id]; recorded || m.gone[id] {
				return nil
			}
			err := m.link(path, ContentPath(id))
			if errors.Is(err, fs.ErrExist) { // what lies above may be a sparse upper
				err = ErrNotMergeable
			}
			return err
		})
		d.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// layerAt returns the path of that one among the layers to merge whose indexes include at. A log record says
// by an index which layer has a file's content.
func (m *merger) layerAt(at Index) string {
	i := m.from
	for m.Index(i) < at {
		i++
	}
	return m.Layers[i]
}

// link links the file called name of the directory layer into the merged layer. ErrNotMergeable means that
// the filesystem allows no further link.
func (m *merger) link(layer, name string) error {
	to := m.path + "/" + name
	err := os.Link(layer+"/"+name, to)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			err = os.Link(layer+"/"+name, to)
		}
	}
	for _, never := range []error{unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, unix.EXDEV, unix.EMLINK} {
		if errors.Is(err, never) {
			err = errors.Join(ErrNotMergeable, err)
		}
	}
	return err
}

// write writes the log of the layer that several are merged into, marked as clean, after its files are in
// place.
func (m *merger) write(records Writer) error {
	dir, err := vfs.OpenDir(unix.AT_FDCWD, m.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	log := append([]byte(Magic), encodeFrame(records)...)
	log = append(log, encodeFrame([]byte{KindClean})...)
	if err := os.WriteFile(m.path+"/log.new", log, 0o600); err != nil {
		return err
	}
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return err
	}
	if err := os.Rename(m.path+"/log.new", m.path+"/log"); err != nil {
		return err
	}
	return dir.Sync()
}

// readRecords opens the layer at path and calls do with each record of its log, as [Layer.Records] does.
func readRecords(path string, do func(kind byte, r *Reader)) error {
	d, err := Open(path, false)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Records(do)
}
