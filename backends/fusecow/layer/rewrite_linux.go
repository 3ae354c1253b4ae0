package layer

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A log of which most tells of what has been changed again since is rewritten: from
// leastLog bytes on, where it is more than mostLog times what all that it tells of would
// take. So opening a layer takes as long as what it holds lets it, whatever was done to
// that how often.
const (
	leastLog = 1 << 20
	mostLog  = 4
)

// shrink rewrites the log of the top layer if that is due. It holds as much as before if
// not, for want of room above all: then it is tried again when it has grown. Cost: a look
// at each node whenever the log is several times as long as at the last; that of reading
// it, and those of the layers below, when it is rewritten. Holds logging.
func (f *FS) shrink(d *dir) {
	if d.size < max(d.look, leastLog) || d.moded {
		return
	}
	f.mu.RLock()
	fresh := f.freshSize()
	f.mu.RUnlock()
	if d.look = mostLog * fresh; d.size < d.look {
		return
	}
	d.look = 2 * d.size
	records, err := f.digest(d)
	if err != nil || int64(len(records)) > d.size/2 {
		return
	}
	if d.replaceLog(records) == nil {
		d.look = mostLog * d.size
	}
}

// freshSize is about how long the log of the top layer would be, or more. Holds mu.
func (f *FS) freshSize() (size int64) {
	for _, n := range f.nodes {
		if n.told != f.top() {
			continue
		}
		size += n.recordSize()
		for name := range n.entries {
			size += int64(nameRecord + len(name))
		}
	}
	return size
}

// A digest is what the log of a layer tells in the end. A record is what follows its kind.
type digest struct {
	nodes map[uint64]lastNode
	seen  int // nodes, each time
	// gone are those that it told to have gone, at any time.
	gone      map[uint64]bool
	names     map[uint64]map[string]lastName
	originals [][]byte
	// of says which originals are there: the first of each path counts.
	of map[string]bool
}

func newDigest() *digest {
	return &digest{nodes: map[uint64]lastNode{}, gone: map[uint64]bool{}, names: map[uint64]map[string]lastName{}, of: map[string]bool{}}
}

type lastNode struct {
	at     int // of all
	record []byte
	parts  []byte // as the record after it says
}

type lastName struct {
	kind   byte
	record []byte
	to     uint64
}

// digest makes the records that tell the same as those of the top layer's log.
func (f *FS) digest(d *dir) (writer, error) {
	g := newDigest()
	if err := d.records(g.add); err != nil {
		return nil, err
	}
	needed := newDigest()
	err := f.each(func(below *dir, _ place) error {
		if below == d {
			return nil
		}
		return below.records(func(kind byte, r *reader) { g.need(needed, kind, r) })
	})
	return g.records(needed), err
}

// add takes the next record.
func (g *digest) add(kind byte, r *reader) {
	before := r.rest
	record := func() []byte { return before[:len(before)-len(r.rest)] }
	switch kind {
	case recordNode:
		n := new(node)
		r.node(n)
		g.seen++
		g.nodes[n.id] = lastNode{at: g.seen, record: record()}
	case recordParts:
		id, _ := r.parts()
		if n, ok := g.nodes[id]; ok {
			n.parts = record()
			g.nodes[id] = n
		}
	case recordGone:
		id := r.num()
		g.gone[id] = true
		delete(g.nodes, id)
		delete(g.names, id)
	case recordName, recordUnname:
		dir, name, to := r.num(), r.text(), uint64(0)
		if kind == recordName {
			to = r.num()
		}
		if g.names[dir] == nil {
			g.names[dir] = map[string]lastName{}
		}
		g.names[dir][name] = lastName{kind, record(), to}
	case recordOriginal:
		if o := r.original(); !g.of[o.Path] {
			g.of[o.Path] = true
			g.originals = append(g.originals, record())
		}
	default:
		r.skip(kind)
	}
}

// need notes what a layer below tells of: that it has gone, or is as the tree below has it,
// has to be told above.
func (g *digest) need(needed *digest, kind byte, r *reader) {
	switch kind {
	case recordNode:
		n := new(node)
		if r.node(n); g.gone[n.id] {
			needed.gone[n.id] = true
		}
	case recordName, recordUnname:
		dir, name := r.num(), r.text()
		if kind == recordName {
			r.num()
		}
		if last, ok := g.names[dir][name]; ok && last.kind == recordUnname {
			if needed.names[dir] == nil {
				needed.names[dir] = map[string]lastName{}
			}
			needed.names[dir][name] = last
		}
	default:
		r.skip(kind)
	}
}

// records puts together what is left. What has gone comes first, because its number may be
// another's since; nodes are in the order of their last records, since the tree below may
// have had two of them at one place; and names come after what they name.
func (g *digest) records(needed *digest) (w writer) {
	for id := range needed.gone {
		w = append(w, recordGone)
		w.num(id)
	}
	nodes := make([]lastNode, 0, len(g.nodes))
	for _, n := range g.nodes {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b lastNode) int { return a.at - b.at })
	for _, n := range nodes {
		w = append(append(w, recordNode), n.record...)
		if n.parts != nil {
			w = append(append(w, recordParts), n.parts...)
		}
	}
	for _, o := range g.originals {
		w = append(append(w, recordOriginal), o...)
	}
	for dir, names := range g.names {
		for name, last := range names {
			_, tell := needed.names[dir][name]
			switch _, there := g.nodes[last.to]; {
			case g.gone[last.to] && !there: // no log tells so that was written in order
				w.hide(dir, name)
			case tell || last.kind == recordName:
				w = append(append(w, last.kind), last.record...)
			}
		}
	}
	return w
}

// replaceLog puts a log of one frame in the place of the layer's, as locked as that. A kill
// at any moment leaves one or the other, whole, and maybe a part of one as log.new. After an
// error the log is as it was, or it is the new one, whose name is put on stable storage
// before anything that is written to it counts as synced.
func (d *dir) replaceLog(records []byte) (err error) {
	log, err := os.OpenFile(d.path+"/log.new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	next := append([]byte(magic), frameOf(records)...)
	if err = unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = log.Write(next)
	}
	if err == nil {
		err = log.Sync()
	}
	if err == nil {
		err = os.Rename(d.path+"/log.new", d.path+"/log")
	}
	if err != nil {
		return errors.Join(err, log.Close(), d.dropNew())
	}
	old := d.log
	d.log, d.size, d.synced, d.renamed = log, int64(len(next)), int64(len(next)), true
	return errors.Join(old.Close(), d.syncName())
}

// syncName puts on stable storage which file the log is.
func (d *dir) syncName() error {
	if !d.renamed {
		return nil
	}
	err := unix.Fsync(d.fd)
	if err == nil {
		d.renamed = false
	}
	return err
}

// dropNew removes what a rewriting that was killed has left.
func (d *dir) dropNew() error {
	if err := os.Remove(d.path + "/log.new"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lockLog opens the log of a layer that nobody else has locked, and locks it. Who rewrites
// a log gives its name to another file: one without the name is nobody's log any more.
func lockLog(path string, flags int) (*os.File, error) {
	for {
		log, err := os.OpenFile(path+"/log", flags|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			log.Close()
			if err == unix.EWOULDBLOCK {
				err = unix.EBUSY
			}
			return nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		mine, err := log.Stat()
		named, nerr := os.Lstat(path + "/log")
		if err != nil || nerr != nil {
			log.Close()
			return nil, errors.Join(err, nerr)
		}
		if os.SameFile(mine, named) {
			return log, nil
		}
		log.Close()
	}
}
