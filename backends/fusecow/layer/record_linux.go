package layer

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
)

// The kinds of records. Numbers are varints; strings follow their length.
const (
	KindInode  = 'n' // the whole state of an inode
	KindGone   = 'g' // an inode is gone
	KindName   = 'e' // a directory has this name; inode 0 is a whiteout
	KindUnname = 'u' // a directory shows the lower's entry under this name again
	KindClean  = 'c' // the layer is clean
	// KindOriginal is the original state of a lower file.
	KindOriginal = 'o'
	KindSparse   = 'p' // the sources of an inode's content; follows its record

	kinds = "ngeucop"
)

// A Writer appends encoded records to a byte slice.
type Writer []byte

func (w *Writer) num(n uint64)  { *w = binary.AppendUvarint(*w, n) }
func (w *Writer) int(n int64)   { *w = binary.AppendVarint(*w, n) }
func (w *Writer) text(s string) { w.num(uint64(len(s))); *w = append(*w, s...) }

func (w *Writer) times(all ...Time) {
	for _, s := range all {
		w.int(s.Sec())
		w.num(uint64(s.Nsec))
	}
}

func (w *Writer) Inode(n *inode) {
	*w = append(*w, KindInode)
	for _, v := range []uint32{n.mode, n.uid, n.gid, n.nlink, n.rdev} {
		w.num(uint64(v))
	}
	w.num(n.id)
	w.int(n.size)
	if n.layer >= 0 {
		w.int(n.charged / 512)
	} else {
		w.int(n.blocks)
	}
	w.int(int64(n.layer))
	w.times(n.atime, n.mtime, n.ctime)
	w.text(n.target)
	w.xattrs(n.xattrs)
	if n.lower == nil {
		w.text("")
		return
	}
	w.text(n.lower.path())
	w.num(n.lower.Ino)
	w.num(uint64(n.lower.Dev))
	w.times(n.lower.Born)
}

func (w *Writer) xattrs(all map[string]string) {
	w.num(uint64(len(all)))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w.text(name)
		w.text(all[name])
	}
}

// Name encodes the current entry of a directory.
func (w *Writer) Name(k nameKey) {
	to, ok := k.dir.entries[k.name]
	if !ok {
		*w = append(*w, KindUnname)
	} else {
		*w = append(*w, KindName)
	}
	w.num(k.dir.id)
	w.text(k.name)
	switch {
	case to != nil:
		w.num(to.id)
	case ok:
		w.num(0)
	}
}

// whiteout encodes a whiteout in a directory.
func (w *Writer) whiteout(dir uint64, name string) {
	*w = append(*w, KindName)
	w.num(dir)
	w.text(name)
	w.num(0)
}

// A Reader decodes records. At a premature end it sets Bad and returns zeros from then on.
type Reader struct {
	rest []byte
	Bad  bool
}

func (r *Reader) Kind() byte {
	k := r.rest[0]
	r.rest = r.rest[1:]
	return k
}

func (r *Reader) Num() uint64 {
	v, n := binary.Uvarint(r.rest)
	return readNumber(r, v, n)
}

func (r *Reader) int() int64 {
	v, n := binary.Varint(r.rest)
	return readNumber(r, v, n)
}

func readNumber[T uint64 | int64](r *Reader, v T, n int) T {
	if n <= 0 {
		r.Bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *Reader) Text() string {
	n := r.Num()
	if n > uint64(len(r.rest)) {
		r.Bad, r.rest = true, nil
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *Reader) xattrs() (all map[string]string) {
	for range r.Num() {
		if r.Bad {
			break
		}
		if all == nil {
			all = map[string]string{}
		}
		name := r.Text()
		all[name] = r.Text()
	}
	return all
}

// Skip skips the rest of a record of that kind.
func (r *Reader) Skip(kind byte) {
	switch kind {
	case KindClean:
	case KindInode:
		r.Inode(new(inode))
	case KindOriginal:
		r.Original()
	case KindSparse:
		r.Sparse()
	case KindGone:
		r.Num()
	case KindName:
		r.Num()
		r.Text()
		r.Num()
	case KindUnname:
		r.Num()
		r.Text()
	default:
		r.Bad = true
	}
}

func (r *Reader) time() Time { return At(r.int(), uint32(r.Num())) }

// Inode decodes an inode into n, whose dirtyState becomes its own, and returns its lower path, "" if it has
// none, and lower identity.
func (r *Reader) Inode(n *inode) (path string, id Identity) {
	n.dirtyState = &dirtyState{}
	for _, p := range []*uint32{&n.mode, &n.uid, &n.gid, &n.nlink, &n.rdev} {
		*p = uint32(r.Num())
	}
	n.id = r.Num()
	n.size, n.blocks, n.layer = r.int(), r.int(), Index(r.int())
	n.setBlocks(n.blocks)
	n.atime, n.mtime, n.ctime = r.time(), r.time(), r.time()
	n.target = r.Text()
	n.xattrs = r.xattrs()
	if path = r.Text(); path == "" {
		return "", id
	}
	id.Ino, id.Dev = r.Num(), uint32(r.Num())
	id.Born = r.time()
	return path, id
}

// Sparse encodes the sources of n's content, if it is sparse.
func (w *Writer) Sparse(n *inode) {
	p := n.sparse
	if p == nil {
		return
	}
	*w = append(*w, KindSparse)
	w.num(n.id)
	w.file(p.Own)
	w.num(uint64(len(p.Sources)))
	for _, s := range p.Sources {
		w.int(int64(s.Layer))
		w.int(s.Until)
		w.file(s.File)
		w.int(s.Size)
		w.times(s.Mtime)
		w.int(s.Blocks)
	}
}

func (w *Writer) file(id Identity) {
	w.num(id.Ino)
	w.times(id.Born)
}

func (r *Reader) Sparse() (id uint64, p *sparseUpper) {
	id = r.Num()
	p = &sparseUpper{Own: r.file(), writeMu: new(sync.Mutex)}
	for range r.Num() {
		if r.Bad {
			break
		}
		s := Source{Layer: Index(r.int()), Until: r.int(), File: r.file(), Size: r.int()}
		s.Mtime, s.Blocks = r.time(), r.int()
		p.Sources = append(p.Sources, s)
	}
	return id, p
}

func (r *Reader) file() Identity { return Identity{Ino: r.Num(), Born: r.time()} }
