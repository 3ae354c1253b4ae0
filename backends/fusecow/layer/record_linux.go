package layer

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
)

// The kinds of records. Numbers are varints, texts have their length before
// them.
const (
	recordNode   = 'n' // all that is known of a node
	recordGone   = 'g' // a node is no more
	recordName   = 'e' // a directory has this name; no node: it has not
	recordUnname = 'u' // a directory has this name as the tree below has it
	recordClean  = 'c' // the layer was closed in order
	// recordOriginal is a file of the tree below, as it was before it was changed.
	recordOriginal = 'o'
	recordParts    = 'p' // what the content of a node is made of, after its record

	kinds = "ngeucop"
)

// A writer puts records together.
type writer []byte

func (w *writer) num(n uint64)  { *w = binary.AppendUvarint(*w, n) }
func (w *writer) int(n int64)   { *w = binary.AppendVarint(*w, n) }
func (w *writer) text(s string) { w.num(uint64(len(s))); *w = append(*w, s...) }

func (w *writer) times(all ...Time) {
	for _, s := range all {
		w.int(s.Sec())
		w.num(uint64(s.Nsec))
	}
}

func (w *writer) node(n *node) {
	*w = append(*w, recordNode)
	for _, v := range []uint32{n.mode, n.uid, n.gid, n.nlink, n.rdev} {
		w.num(uint64(v))
	}
	w.num(n.id)
	w.int(n.size)
	if n.place >= 0 {
		w.int(n.held / 512)
	} else {
		w.int(n.blocks)
	}
	w.int(int64(n.place))
	w.times(n.atime, n.mtime, n.ctime)
	w.text(n.target)
	w.xattrs(n.xattrs)
	if n.from == nil {
		w.text("")
		return
	}
	w.text(n.from.path())
	w.num(n.from.ino)
	w.num(uint64(n.from.dev))
	w.times(n.from.born)
}

func (w *writer) xattrs(all map[string]string) {
	w.num(uint64(len(all)))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w.text(name)
		w.text(all[name])
	}
}

// name writes what a directory says of a name now.
func (w *writer) name(k nameKey) {
	to, ok := k.dir.entries[k.name]
	if !ok {
		*w = append(*w, recordUnname)
	} else {
		*w = append(*w, recordName)
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

// hide writes that a directory has no such name.
func (w *writer) hide(dir uint64, name string) {
	*w = append(*w, recordName)
	w.num(dir)
	w.text(name)
	w.num(0)
}

// A reader takes records apart. Where they end too soon it is bad, and answers
// with zeros.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) kind() byte {
	k := r.rest[0]
	r.rest = r.rest[1:]
	return k
}

func (r *reader) num() uint64 {
	v, n := binary.Uvarint(r.rest)
	return number(r, v, n)
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.rest)
	return number(r, v, n)
}

func number[T uint64 | int64](r *reader, v T, n int) T {
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) text() string {
	n := r.num()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *reader) xattrs() (all map[string]string) {
	for range r.num() {
		if r.bad {
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

// skip goes over a record of a kind that nobody wants.
func (r *reader) skip(kind byte) {
	switch kind {
	case recordClean:
	case recordNode:
		r.node(new(node))
	case recordOriginal:
		r.original()
	case recordParts:
		r.parts()
	case recordGone:
		r.num()
	case recordName:
		r.num()
		r.text()
		r.num()
	case recordUnname:
		r.num()
		r.text()
	default:
		r.bad = true
	}
}

func (r *reader) time() Time { return At(r.int(), uint32(r.num())) }

// node reads one into n, whose deeds are its own then, and where the tree below has it: nothing, or a path.
func (r *reader) node(n *node) (path string, id identity) {
	n.deeds = &deeds{}
	for _, p := range []*uint32{&n.mode, &n.uid, &n.gid, &n.nlink, &n.rdev} {
		*p = uint32(r.num())
	}
	n.id = r.num()
	n.size, n.blocks, n.place = r.int(), r.int(), place(r.int())
	n.takes(n.blocks)
	n.atime, n.mtime, n.ctime = r.time(), r.time(), r.time()
	n.target = r.text()
	n.xattrs = r.xattrs()
	if path = r.text(); path == "" {
		return "", id
	}
	id.ino, id.dev = r.num(), uint32(r.num())
	id.born = r.time()
	return path, id
}

// parts writes what the log tells of a node whose content is in parts, after its record.
func (w *writer) parts(n *node) {
	p := n.parts
	if p == nil {
		return
	}
	*w = append(*w, recordParts)
	w.num(n.id)
	w.file(p.own)
	w.num(uint64(len(p.beneath)))
	for _, s := range p.beneath {
		w.int(int64(s.place))
		w.int(s.until)
		w.file(s.file)
		w.int(s.size)
		w.times(s.mtime)
		w.int(s.blocks)
	}
}

func (w *writer) file(id identity) {
	w.num(id.ino)
	w.times(id.born)
}

func (r *reader) parts() (id uint64, p *parts) {
	id = r.num()
	p = &parts{own: r.file(), writing: new(sync.Mutex)}
	for range r.num() {
		if r.bad {
			break
		}
		s := stratum{place: place(r.int()), until: r.int(), file: r.file(), size: r.int()}
		s.mtime, s.blocks = r.time(), r.int()
		p.beneath = append(p.beneath, s)
	}
	return id, p
}

func (r *reader) file() identity { return identity{ino: r.num(), born: r.time()} }
