package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// ErrApart is that of layers that have to stay apart.
var ErrApart = errors.New("the layers cannot be merged")

// Merge makes a layer at path, which is not there yet, that tells and holds what the layers of o from the
// index from up to, but without, the index to do together, above those below them: for stacks in which no state
// lies in between. Their places are its own then, the last of theirs being where what they hold counts (see [Options.Places]), so
// that layers above it stay as they are. They stay too, and the content of files is in both: one file, with
// two names. All of it is on stable storage.
//
// Cost: reading the logs of these layers and of those below, and a link(2) for each content that is left. Errors:
// ErrApart, where parts of one file are in several of them, something in one was put aside, or the filesystem gives their files
// no further names; [ErrDamaged]; those of files.
// After one a part of it may be at path, without a log, which makes it no layer.
func Merge(o Options, from, to int, path string) error {
	m := &merger{o: &o, from: from, to: to, path: path, digest: newDigest(), keeps: map[string]string{}}
	err := os.MkdirAll(path+"/data", 0o700)
	if err == nil {
		err = m.read()
	}
	var records writer
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
	o        *Options
	from, to int
	path     string
	*digest
	keeps map[string]string // the layer that has the content of an original, by its name
}

// read reads the logs.
func (m *merger) read() error {
	apart := false
	for i := m.from; i < m.to; i++ {
		if err := m.whole(m.o.Layers[i]); err != nil {
			return err
		}
		originals := len(m.originals)
		err := records(m.o.Layers[i], func(kind byte, r *reader) {
			before := r.rest
			if m.add(kind, r); len(m.originals) == originals {
				return
			}
			originals = len(m.originals)
			if o := (&reader{rest: before}).original(); o.kept > 0 {
				apart = apart || m.keeps[o.name()] != "" // another has that number
				m.keeps[o.name()] = m.o.Layers[i]
			}
		})
		if err == nil && apart {
			err = ErrApart
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whole looks whether a layer has what its log does not tell of.
func (m *merger) whole(path string) error {
	for _, pattern := range []string{"/found", "/log.damaged*"} {
		if list, err := filepath.Glob(escaped(path) + pattern); err != nil || len(list) > 0 {
			return errors.Join(ErrApart, err)
		}
	}
	return nil
}

// records are those of the log, with the content of the layers linked to its place.
func (m *merger) records() (writer, error) {
	needed := newDigest()
	for _, below := range m.o.Layers[:m.from] {
		if err := records(below, func(kind byte, r *reader) { m.need(needed, kind, r) }); err != nil {
			return nil, err
		}
	}
	first, last := m.o.above(m.from), m.o.place(m.to-1)
	for id, l := range m.nodes {
		n := new(node)
		at, identity := (&reader{rest: l.record}).node(n)
		if l.parts != nil {
			_, n.parts = (&reader{rest: l.parts}).parts()
			for _, s := range n.parts.beneath {
				if s.place >= first {
					return nil, ErrApart
				}
			}
		}
		if n.place < first {
			continue
		}
		if err := m.link(m.holder(n.place), sharded(id)); err != nil {
			return nil, err
		}
		n.place = last
		if at != "" {
			n.from = &origin{dir: &origin{}, name: at, identity: identity}
			if at == "." {
				n.from = &origin{identity: identity}
			}
		}
		var w writer
		w.node(n)
		l.record = w[1:]
		m.nodes[id] = l
	}
	for name, layer := range m.keeps {
		if err := m.link(layer, name); err != nil {
			return nil, err
		}
	}
	return m.digest.records(needed), m.untold()
}

// untold links content that no log tells of yet: of a file that had no name when the layer was frozen,
// and may have got one above (O_TMPFILE).
func (m *merger) untold() error {
	for _, path := range m.o.Layers[m.from:m.to] {
		d, err := openDir(path, false)
		if err != nil {
			return err
		}
		err = d.contents(func(id uint64, _ *kernel.Stat) error {
			if _, told := m.nodes[id]; told || m.gone[id] {
				return nil
			}
			err := m.link(path, sharded(id))
			if errors.Is(err, fs.ErrExist) { // what is above it may be a part
				err = ErrApart
			}
			return err
		})
		d.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// holder is the layer that has a place.
func (m *merger) holder(at place) string {
	i := m.from
	for m.o.place(i) < at {
		i++
	}
	return m.o.Layers[i]
}

// link gives a file of a layer the same name in the one that is made. ErrApart: the filesystem
// has no further names for files, or none for this one here.
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
			err = errors.Join(ErrApart, err)
		}
	}
	return err
}

// write writes the log of a layer that is closed in order, when all else is there.
func (m *merger) write(records writer) error {
	dir, err := kernel.OpenDir(unix.AT_FDCWD, m.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	log := append([]byte(magic), frameOf(records)...)
	log = append(log, frameOf([]byte{recordClean})...)
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

// records calls do with each record of the log of a layer, as [dir.records] does.
func records(path string, do func(kind byte, r *reader)) error {
	d, err := openDir(path, false)
	if err != nil {
		return err
	}
	defer d.close()
	return d.records(do)
}
