package logfile

import (
	"encoding/binary"
	"maps"
	"slices"
)

// The kinds of records of a layer's log, each the first byte of a record. Numbers are varints; strings follow
// their length.
const (
	KindInode  = 'n' // the whole state of an inode
	KindGone   = 'g' // an inode is gone
	KindName   = 'e' // a directory has this name; inode 0 is a whiteout
	KindUnname = 'u' // a directory shows the lower's entry under this name again
	KindClean  = 'c' // the layer is clean
	// KindOriginal is the kind of a log record with the state that a lower file had before the fork changed
	// it; see [Original].
	KindOriginal = 'o'
	KindSparse   = 'p' // the extent sources of an inode's content; follows its record

	kinds = "ngeucop"
)

// A Writer is a list of encoded records for the log of a layer. Its methods append records; [Layer.Append]
// writes them as one frame.
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

func (w *Writer) xattrs(all map[string]string) {
	w.num(uint64(len(all)))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w.text(name)
		w.text(all[name])
	}
}

func (w *Writer) file(id Identity) {
	w.num(id.Ino)
	w.times(id.Born)
}

// raw appends a log record of that kind whose fields are already encoded, such as one of a [Digest].
func (w *Writer) raw(kind byte, fields []byte) { *w = append(append(*w, kind), fields...) }

// Inode appends a log record of the whole state of the inode n: its attributes, and where its content is.
func (w *Writer) Inode(n *Inode) {
	*w = append(*w, KindInode)
	for _, v := range []uint32{n.Mode, n.UID, n.GID, n.Nlink, n.Rdev} {
		w.num(uint64(v))
	}
	w.num(n.ID)
	w.int(n.Size)
	w.int(n.Blocks)
	w.int(int64(n.Layer))
	w.times(n.Atime, n.Mtime, n.Ctime)
	w.text(n.Target)
	w.xattrs(n.Xattrs)
	w.text(n.LowerPath)
	if n.LowerPath != "" {
		w.num(n.Lower.Ino)
		w.num(uint64(n.Lower.Dev))
		w.times(n.Lower.Born)
	}
}

// Gone appends a log record that says that the inode id was removed.
func (w *Writer) Gone(id uint64) {
	*w = append(*w, KindGone)
	w.num(id)
}

// Name appends a log record that says that name in the directory dir leads to the inode to, or is a whiteout
// if to is 0.
func (w *Writer) Name(dir uint64, name string, to uint64) {
	*w = append(*w, KindName)
	w.num(dir)
	w.text(name)
	w.num(to)
}

// Unname appends a log record that says that the directory dir shows the lower's entry called name again.
func (w *Writer) Unname(dir uint64, name string) {
	*w = append(*w, KindUnname)
	w.num(dir)
	w.text(name)
}

// Sparse appends a record of the extent sources p, the files that show through the holes of the inode id. The
// record of the inode itself must come before.
func (w *Writer) Sparse(id uint64, p *Sparse) {
	*w = append(*w, KindSparse)
	w.num(id)
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

// A Reader decodes log records: the caller calls Kind, and then the method for that kind. At a premature end
// it sets Bad and returns zeros from then on.
type Reader struct {
	rest []byte
	Bad  bool
}

// NewReader returns a [Reader] that decodes the records of one frame of a layer's log.
func NewReader(records []byte) *Reader { return &Reader{rest: records} }

// More reports whether another log record follows in the frame.
func (r *Reader) More() bool { return len(r.rest) > 0 }

// Kind decodes the kind of the next log record, one of the constants KindInode and so on.
func (r *Reader) Kind() byte {
	k := r.rest[0]
	r.rest = r.rest[1:]
	return k
}

func (r *Reader) num() uint64 {
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

func (r *Reader) text() string {
	n := r.num()
	if n > uint64(len(r.rest)) {
		r.Bad, r.rest = true, nil
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *Reader) xattrs() (all map[string]string) {
	for range r.num() {
		if r.Bad {
			break
		}
		if all == nil {
			all = map[string]string{}
		}
		name := r.text()
		all[name] = r.text()
	}
	return all
}

func (r *Reader) time() Time { return At(r.int(), uint32(r.num())) }

func (r *Reader) file() Identity { return Identity{Ino: r.num(), Born: r.time()} }

// Inode decodes a log record of the state of an inode: its attributes, and where its content is.
func (r *Reader) Inode() (n Inode) {
	for _, p := range []*uint32{&n.Mode, &n.UID, &n.GID, &n.Nlink, &n.Rdev} {
		*p = uint32(r.num())
	}
	n.ID = r.num()
	n.Size, n.Blocks, n.Layer = r.int(), r.int(), Index(r.int())
	n.Atime, n.Mtime, n.Ctime = r.time(), r.time(), r.time()
	n.Target = r.text()
	n.Xattrs = r.xattrs()
	if n.LowerPath = r.text(); n.LowerPath != "" {
		n.Lower.Ino, n.Lower.Dev = r.num(), uint32(r.num())
		n.Lower.Born = r.time()
	}
	return n
}

// Gone decodes the log record that says that an inode was removed, and returns its number.
func (r *Reader) Gone() (id uint64) { return r.num() }

// Name decodes a record of a directory entry: the inode number of the directory, the name, and the inode it
// leads to, 0 for a whiteout.
func (r *Reader) Name() (dir uint64, name string, to uint64) { return r.num(), r.text(), r.num() }

// Unname decodes a log record that says that the directory dir shows the lower's entry called name again.
func (r *Reader) Unname() (dir uint64, name string) { return r.num(), r.text() }

// Sparse decodes a log record of extent sources: the inode id, and the files p that show through the holes of
// its content.
func (r *Reader) Sparse() (id uint64, p Sparse) {
	id = r.num()
	p.Own = r.file()
	for range r.num() {
		if r.Bad {
			break
		}
		s := Source{Layer: Index(r.int()), Until: r.int(), File: r.file(), Size: r.int()}
		s.Mtime, s.Blocks = r.time(), r.int()
		p.Sources = append(p.Sources, s)
	}
	return id, p
}

// Skip skips the fields of a log record whose kind was read already and which the caller does not need.
func (r *Reader) Skip(kind byte) {
	switch kind {
	case KindClean:
	case KindInode:
		r.Inode()
	case KindOriginal:
		r.Original()
	case KindSparse:
		r.Sparse()
	case KindGone:
		r.Gone()
	case KindName:
		r.Name()
	case KindUnname:
		r.Unname()
	default:
		r.Bad = true
	}
}
