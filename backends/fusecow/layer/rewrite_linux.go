package layer

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A log is compacted when it has at least minCompaction bytes and most of them record states that were changed
// again since: when it is compactionRatio times larger than a fresh log would be. This keeps the time to open a
// layer proportional to its state, not to its history.
const (
	minCompaction   = 1 << 20
	compactionRatio = 4
)

// compactLog rewrites the log of the top layer when due. If that fails, mostly for lack of space, the log stays
// as it is and compactLog tries again after it has grown. Cost: a look at each inode whenever the log has grown
// several times; for a rewrite, reading this log and those of the layers below. The caller holds logMu.
func (f *FS) compactLog(d *Layer) {
	if d.Size < max(d.nextCompaction, minCompaction) || d.UncleanMode {
		return
	}
	f.mu.RLock()
	fresh := f.compactedSize()
	f.mu.RUnlock()
	if d.nextCompaction = compactionRatio * fresh; d.Size < d.nextCompaction {
		return
	}
	d.nextCompaction = 2 * d.Size
	records, err := f.digestLog(d)
	if err != nil || int64(len(records)) > d.Size/2 {
		return
	}
	if d.Replace(records) == nil {
		d.nextCompaction = compactionRatio * d.Size
	}
}

// compactedSize estimates, from above, the size of a fresh log of the top layer. The caller holds mu.
func (f *FS) compactedSize() (size int64) {
	for _, n := range f.inodes {
		if n.recordedIn != f.top() {
			continue
		}
		size += n.recordSize()
		for name := range n.entries {
			size += int64(nameRecordSize + len(name))
		}
	}
	return size
}

// A Digest is the final state that a log describes. Its records lack the byte of their kind.
type Digest struct {
	inodes map[uint64]lastInode
	seen   int // number of inode records so far
	// gone are all inodes that the log ever recorded as gone.
	gone      map[uint64]bool
	names     map[uint64]map[string]lastName
	originals [][]byte
	// originalOf has the paths of originals: the first original of a path counts.
	originalOf map[string]bool
}

func NewDigest() *Digest {
	return &Digest{inodes: map[uint64]lastInode{}, gone: map[uint64]bool{}, names: map[uint64]map[string]lastName{}, originalOf: map[string]bool{}}
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

// digestLog returns records with the same effect as the top layer's log.
func (f *FS) digestLog(d *Layer) (Writer, error) {
	g := NewDigest()
	if err := d.Records(g.Add); err != nil {
		return nil, err
	}
	needed := NewDigest()
	err := f.eachLayer(func(below *Layer, _ Index) error {
		if below == d {
			return nil
		}
		return below.Records(func(kind byte, r *Reader) { g.Need(needed, kind, r) })
	})
	return g.Records(needed), err
}

// Add takes the next record of the log.
func (g *Digest) Add(kind byte, r *Reader) {
	before := r.rest
	record := func() []byte { return before[:len(before)-len(r.rest)] }
	switch kind {
	case KindInode:
		n := new(inode)
		r.Inode(n)
		g.seen++
		g.inodes[n.id] = lastInode{at: g.seen, record: record()}
	case KindSparse:
		id, _ := r.Sparse()
		if n, ok := g.inodes[id]; ok {
			n.sparse = record()
			g.inodes[id] = n
		}
	case KindGone:
		id := r.Num()
		g.gone[id] = true
		delete(g.inodes, id)
		delete(g.names, id)
	case KindName, KindUnname:
		dir, name, to := r.Num(), r.Text(), uint64(0)
		if kind == KindName {
			to = r.Num()
		}
		if g.names[dir] == nil {
			g.names[dir] = map[string]lastName{}
		}
		g.names[dir][name] = lastName{kind, record(), to}
	case KindOriginal:
		if o := r.Original(); !g.originalOf[o.Path] {
			g.originalOf[o.Path] = true
			g.originals = append(g.originals, record())
		}
	default:
		r.Skip(kind)
	}
}

// Need takes a record of a layer below. It collects in needed the gone and unname records of g that cancel one
// of those below, and so have to stay.
func (g *Digest) Need(needed *Digest, kind byte, r *Reader) {
	switch kind {
	case KindInode:
		n := new(inode)
		if r.Inode(n); g.gone[n.id] {
			needed.gone[n.id] = true
		}
	case KindName, KindUnname:
		dir, name := r.Num(), r.Text()
		if kind == KindName {
			r.Num()
		}
		if last, ok := g.names[dir][name]; ok && last.kind == KindUnname {
			if needed.names[dir] == nil {
				needed.names[dir] = map[string]lastName{}
			}
			needed.names[dir][name] = last
		}
	default:
		r.Skip(kind)
	}
}

// Records returns the minimal records. Gone inodes come first, because their numbers may have been reused.
// Inodes stay in the order of their last records, because two of them may have had the same lower path. Names
// come after the inodes that they refer to.
func (g *Digest) Records(needed *Digest) (w Writer) {
	for id := range needed.gone {
		w = append(w, KindGone)
		w.num(id)
	}
	nodes := make([]lastInode, 0, len(g.inodes))
	for _, n := range g.inodes {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b lastInode) int { return a.at - b.at })
	for _, n := range nodes {
		w = append(append(w, KindInode), n.record...)
		if n.sparse != nil {
			w = append(append(w, KindSparse), n.sparse...)
		}
	}
	for _, o := range g.originals {
		w = append(append(w, KindOriginal), o...)
	}
	for dir, names := range g.names {
		for name, last := range names {
			_, tell := needed.names[dir][name]
			switch _, there := g.inodes[last.to]; {
			case g.gone[last.to] && !there: // no log that was written in order has this case
				w.whiteout(dir, name)
			case tell || last.kind == KindName:
				w = append(append(w, last.kind), last.record...)
			}
		}
	}
	return w
}

// Replace replaces the log with one of a single frame, and locks the new file. A kill at any moment leaves the
// old or the new log, whole, and maybe a partial log.new. After an error the log is either the old or the new
// one; the new name reaches stable storage before anything appended later counts as synced.
func (d *Layer) Replace(records []byte) (err error) {
	log, err := os.OpenFile(d.Path+"/log.new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	next := append([]byte(Magic), encodeFrame(records)...)
	if err = unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = log.Write(next)
	}
	if err == nil {
		err = log.Sync()
	}
	if err == nil {
		err = os.Rename(d.Path+"/log.new", d.Path+"/log")
	}
	if err != nil {
		return errors.Join(err, log.Close(), d.RemoveTemp())
	}
	old := d.log
	d.log, d.Size, d.synced, d.renamed = log, int64(len(next)), int64(len(next)), true
	return errors.Join(old.Close(), d.syncDir())
}

// syncDir puts the directory entry of the log on stable storage.
func (d *Layer) syncDir() error {
	if !d.renamed {
		return nil
	}
	err := unix.Fsync(d.FD)
	if err == nil {
		d.renamed = false
	}
	return err
}

// RemoveTemp removes the log.new of a killed Replace.
func (d *Layer) RemoveTemp() error {
	if err := os.Remove(d.Path + "/log.new"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lockLog opens and locks the log of a layer. Replace gives the name to another file, so a log that has lost
// its name after it was locked is opened anew.
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
