package logfile

import "slices"

// A Digest is the final state that a layer's log describes, as the last record of each inode and name. It
// serves to rewrite a log without outdated records, and to merge logs. Its records lack the byte of their
// kind.
type Digest struct {
	inodes map[uint64]lastInode
	seen   int // number of inode records so far
	// gone holds all inodes that the log ever recorded as removed.
	gone      map[uint64]bool
	names     map[uint64]map[string]lastName
	originals [][]byte
	// originalOf has the paths of originals: the first original of a path counts.
	originalOf map[string]bool
}

// NewDigest returns the [Digest], the final state that a log describes, of an empty log. Add then takes the
// records of a real one.
func NewDigest() *Digest {
	return &Digest{
		inodes: map[uint64]lastInode{}, gone: map[uint64]bool{},
		names: map[uint64]map[string]lastName{}, originalOf: map[string]bool{},
	}
}

type lastInode struct {
	at     int // position among all inode records
	record []byte
	sparse []byte // the record of sources after it
}

type lastName struct {
	kind   byte
	record []byte
	to     uint64
}

// Add updates the digest, the final state that a log describes, by the next record of the log, which is of
// that kind. r is at the fields of the record.
func (g *Digest) Add(kind byte, r *Reader) {
	before := r.rest
	record := func() []byte { return before[:len(before)-len(r.rest)] }
	switch kind {
	case KindInode:
		id := r.Inode().ID
		g.seen++
		g.inodes[id] = lastInode{at: g.seen, record: record()}
	case KindSparse:
		id, _ := r.Sparse()
		if n, ok := g.inodes[id]; ok {
			n.sparse = record()
			g.inodes[id] = n
		}
	case KindGone:
		id := r.Gone()
		g.gone[id] = true
		delete(g.inodes, id)
		delete(g.names, id)
	case KindName:
		dir, name, to := r.Name()
		setName(g.names, dir, name, lastName{kind, record(), to})
	case KindUnname:
		dir, name := r.Unname()
		setName(g.names, dir, name, lastName{kind, record(), 0})
	case KindOriginal:
		if o := r.Original(); !g.originalOf[o.Path] {
			g.originalOf[o.Path] = true
			g.originals = append(g.originals, record())
		}
	default:
		r.Skip(kind)
	}
}

// Need reads one record, of that kind, of a layer below the digested log. If a record of the digest cancels
// it (the inode was removed, or the name is the lower's again), Need adds the cancelling record to needed, so
// that Records does not drop it.
func (g *Digest) Need(needed *Digest, kind byte, r *Reader) {
	switch kind {
	case KindInode:
		if id := r.Inode().ID; g.gone[id] {
			needed.gone[id] = true
		}
	case KindName:
		dir, name, _ := r.Name()
		g.needUnname(needed, dir, name)
	case KindUnname:
		dir, name := r.Unname()
		g.needUnname(needed, dir, name)
	default:
		r.Skip(kind)
	}
}

// needUnname adds to needed the digest's last record of name in the directory dir, if that says that the
// lower's entry is visible again. A layer below has a record of the name, which it cancels.
func (g *Digest) needUnname(needed *Digest, dir uint64, name string) {
	if last, ok := g.names[dir][name]; ok && last.kind == KindUnname {
		setName(needed.names, dir, name, last)
	}
}

func setName(names map[uint64]map[string]lastName, dir uint64, name string, last lastName) {
	if names[dir] == nil {
		names[dir] = map[string]lastName{}
	}
	names[dir][name] = last
}

// Records returns the fewest records that have the digest's effect. Those that only cancel records of layers
// below are included only if needed has them. Removed inodes come first, because their numbers may have been
// reused; inodes keep the order of their last records; names follow the inodes that they refer to.
func (g *Digest) Records(needed *Digest) (w Writer) {
	for id := range needed.gone {
		w.Gone(id)
	}
	inodes := make([]lastInode, 0, len(g.inodes))
	for _, n := range g.inodes {
		inodes = append(inodes, n)
	}
	slices.SortFunc(inodes, func(a, b lastInode) int { return a.at - b.at })
	for _, n := range inodes {
		w.raw(KindInode, n.record)
		if n.sparse != nil {
			w.raw(KindSparse, n.sparse)
		}
	}
	for _, o := range g.originals {
		w.raw(KindOriginal, o)
	}
	for dir, names := range g.names {
		for name, last := range names {
			_, stays := needed.names[dir][name]
			switch _, there := g.inodes[last.to]; {
			case g.gone[last.to] && !there: // no log that was written in order has this case
				w.Name(dir, name, 0)
			case stays || last.kind == KindName:
				w.raw(last.kind, last.record)
			}
		}
	}
	return w
}
