package layer

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// Options say what a filesystem is made of.
type Options struct {
	// Lower is the tree that is only read, without what is mounted in it where this
	// process may mount.
	Lower string
	// Layers are directories: frozen ones, the oldest first, and at last the one
	// that takes the changes, which is made with its log where there is none.
	Layers []string
	// Places are, of each of Layers, the last of the places in the stack that it has, rising, where some
	// were made of several by [Merge]. nil: one each.
	Places []int
	// Base is how many of the first layers are another's, so that what they hold counts
	// for no quota of this one.
	Base int
	// Whole is how much content of a file of the tree below is copied at most when that is
	// first written to, in bytes, 0 being 64 MiB; of a file that has more, whose blocks cannot be
	// shared, those blocks are brought up alone that are written to. Then it has to stay as it is: what
	// was not brought up cannot be read (ESTALE) after somebody has written to it below. Of a file
	// of a layer, or of a frozen tree, a 64th as much.
	Whole int64
	// Since, unless it is zero: files of the tree below that have this change time or a later one
	// when their content is opened are noted, see [FS.Late].
	Since kernel.Timestamp
	// ReadOnly: no layer takes changes, and nobody is kept from writing to the last.
	ReadOnly bool
	// Frozen: nobody changes the tree below, so that nothing of it need be kept.
	Frozen bool

	// repair: the log of the last layer does not know all that is there, even where it was
	// closed; cut is the byte from which on it is not to be read, or 0.
	repair bool
	cut    int64
}

// An FS is the filesystem behind one FUSE connection, however many mounts that has. It
// holds its topmost layer for itself alone until Close.
type FS struct {
	fds   *fds
	lower int // a descriptor of the tree below
	// dev, the device of its root, readOnly, frozen, base, whole and block, the unit of space, never change.
	dev      uint32
	readOnly bool
	frozen   bool
	base     place // the first that counts
	block    int64
	whole    int64 // see Options
	raising  bool  // see Raise: what it was below need not be kept
	root     *node
	stale    []func(dir uint64, name string) // see OnStale
	late     late

	// freezing is held for reading by who writes content, for writing by who
	// freezes. It is taken before all others.
	freezing sync.RWMutex

	mu    sync.RWMutex
	nodes map[uint64]*node // those that the kernel knows, and the changed ones
	// strays are, of those of the tree below, the latest with another number than theirs there.
	strays map[identity]*node
	// aliases are further names of those of the tree below, that were looked up.
	aliases map[*node][]*origin
	next    uint64  // the number of the next node
	layers  []*dir  // by their places: one that was merged has several
	counts  []*slot // of the layers, by the last of their places
	quota   *Quota  // that those from base on are held to, or nil
	// pending is what the log will grow by, about.
	pending atomic.Int64
	// frame counts the frames that were written, those that were there when the layers
	// were opened being one; firm is the last that is on stable storage.
	frame, firm atomic.Int64
	// What the log has not heard of yet.
	dirty map[*node]struct{}
	names map[nameKey]struct{}
	// loose are nodes that have no name any more, or none yet, and are still known.
	loose map[*node]struct{}
	// removed are directories that the kernel knows and has removed itself. It never looks into
	// such an inode again, so that one that comes back is another to it: again counts how often.
	removed map[uint64]struct{}
	again   map[uint64]uint64
	// garbage is content whose nodes have gone, which the log has not heard of.
	garbage []remains
	// going is what a commit is removing of it, which counts until it has.
	going atomic.Int64
	// originals are those of files that were changed.
	originals []*Original

	logging sync.Mutex // held while the log is written; taken before mu
	lists   lists
	stop    chan struct{}
	stopped sync.WaitGroup
}

// remains are content, and what it counts for.
type remains struct {
	id   uint64
	held int64
}

type nameKey struct {
	dir  *node
	name string
}

const (
	mostFDs = 512
	// commitAfter is how long a change may be known to memory only. Whatever
	// fsync(2) was called for is on the disk before.
	commitAfter = time.Second
)

// Open reads the layers and answers with the tree they make. Cost: in
// proportion to what was changed in all of them. Errors: unix.EBUSY (the top
// layer is in use), [ErrDamaged], and those of files. After one nothing is
// changed but that a missing top layer may have been made, or content put aside.
func Open(o Options) (_ *FS, err error) {
	if len(o.Layers) == 0 && !o.ReadOnly {
		return nil, errors.New("opening layers: there is none to take changes")
	}
	f, err := openRoot(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.release()
		}
	}()
	for i, path := range o.Layers {
		if err := f.stack(i, &o); err != nil {
			return nil, fmt.Errorf("opening the layer %s: %w", path, err)
		}
	}
	if !f.readOnly {
		f.next = fresh()
		f.stopped.Go(f.commitNowAndThen)
	}
	return f, nil
}

// fresh is the number of the first node that is made by who opens layers to write to them. It
// is drawn of 2^60, so that no other has the same ones, whichever layers both begin with: then a
// number means one node in all of them, as [FS.HandOver] needs it.
func fresh() uint64 { return made + rand.Uint64N(1<<60) }

// Lower is a path by which this process finds the tree below while f is open, whatever is mounted by then where it was.
func (f *FS) Lower() string { return "/proc/self/fd/" + strconv.Itoa(f.lower) }

// ReadOnly reports whether nothing of it can be changed.
func (f *FS) ReadOnly() bool { return f.readOnly }

// openRoot begins with the tree below alone.
func openRoot(o Options) (_ *FS, err error) {
	f := &FS{
		fds: newFDs(mostFDs), lower: -1, readOnly: o.ReadOnly, frozen: o.Frozen, nodes: map[uint64]*node{}, strays: map[identity]*node{}, aliases: map[*node][]*origin{}, next: made,
		dirty: map[*node]struct{}{}, names: map[nameKey]struct{}{}, loose: map[*node]struct{}{}, stop: make(chan struct{}),
		removed: map[uint64]struct{}{}, again: map[uint64]uint64{},
		late:  late{since: o.Since},
		block: blockSize, base: o.above(o.Base), whole: cmp.Or(o.Whole, defaultWhole),
	}
	f.frame.Store(1)
	if f.lower, err = openLower(o.Lower); err != nil {
		return nil, err
	}
	st, err := kernel.Lstat(f.lower, "")
	if err != nil {
		f.release()
		return nil, err
	}
	f.dev = uint32(st.Dev)
	f.root = &node{id: rootID, from: &origin{identity: f.identityOf(&st)}, attr: attrOf(&st), lookups: 1, deeds: none}
	f.root.ino, f.root.place = st.Ino, nowhere
	f.nodes[rootID] = f.root
	return f, nil
}

// openLower opens the tree below alone, by a copy of its mount that nobody else
// sees, or, for an ordinary user, with all that is mounted in it.
func openLower(path string) (int, error) {
	if m, err := kernel.CloneTree(path, false); err == nil {
		defer m.Close()
		path = kernel.FDPath(m) + "/."
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// place is the last that one of the layers has.
func (o *Options) place(i int) place {
	if o.Places == nil {
		return place(i)
	}
	return place(o.Places[i])
}

// above is the first place above n layers.
func (o *Options) above(n int) place {
	if n == 0 {
		return 0
	}
	return o.place(n-1) + 1
}

// push gives a layer its places, on top of those that are open.
func (f *FS) push(d *dir, upTo place) {
	for f.top() < upTo {
		f.layers, f.counts = append(f.layers, d), append(f.counts, &slot{})
	}
}

// each calls do with each open layer, and the last of its places.
func (f *FS) each(do func(d *dir, at place) error) error {
	for i, d := range f.layers {
		if i+1 < len(f.layers) && f.layers[i+1] == d {
			continue
		}
		if err := do(d, place(i)); err != nil {
			return err
		}
	}
	return nil
}

// Has reports whether the layer at a path is open.
func (f *FS) Has(path string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.ContainsFunc(f.layers, func(d *dir) bool { return d.path == path })
}

// has reports whether a place is that of a layer.
func (f *FS) has(d *dir, at place) bool {
	return at >= 0 && int(at) < len(f.layers) && f.layers[at] == d
}

// stack puts the i-th layer on top of those that are open.
func (f *FS) stack(i int, o *Options) error {
	top := i == len(o.Layers)-1
	own := top && !f.readOnly
	d, err := openDir(o.Layers[i], own)
	if err != nil {
		return err
	}
	if top {
		d.cut = o.cut
	}
	f.push(d, o.place(i))
	if f.block, err = blockOf(d.fd); err != nil {
		return err
	}
	clean, err := f.replay(d)
	f.pending.Store(0)
	f.countLog(d, f.tally())
	if err != nil || !top {
		return err
	}
	if own && clean && d.size == int64(len(magic)) {
		if d.torn, err = d.hasContent(); err != nil {
			return err
		}
	}
	if !clean || d.torn || o.repair {
		if err := f.mend(o.repair); err != nil {
			return err
		}
	}
	if !own {
		return nil
	}
	if err := errors.Join(d.dropNew(), d.end()); err != nil {
		return err
	}
	f.shrink(d)
	defer f.countLog(d, f.tally())
	return d.begun()
}

func (f *FS) top() place { return place(len(f.layers) - 1) }

// commitNowAndThen bounds what a killed process loses.
func (f *FS) commitNowAndThen() {
	tick := time.NewTicker(commitAfter)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
			// What cannot be written stays dirty: fsync, Sync and Close report it.
			_ = f.commit(false)
		}
	}
}

// Sync writes all changes of names and attributes, and the content of all files,
// to stable storage. What programs wrote to mapped pages is the kernel's until
// they, or the caller, sync the mount. Errors are those of files.
func (f *FS) Sync() error {
	if f.readOnly {
		return nil
	}
	f.mu.RLock()
	d := f.layers[f.top()]
	f.mu.RUnlock()
	if err := f.commit(false); err != nil {
		return err
	}
	return unix.Syncfs(d.fd)
}

// Freeze makes the top layer read-only and puts a new one, at path, on it, when then,
// which is called while nobody can change anything, agrees. It is safe while programs
// run: each change is in one of the two. Cost: one commit, whatever the tree and the
// layer hold. After an error, of then too, all is as it was, and path may exist.
func (f *FS) Freeze(path string, then func() error) (err error) {
	f.freezing.Lock()
	defer f.freezing.Unlock()
	if err := f.commit(true); err != nil {
		return err
	}
	d, err := openDir(path, true)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	f.logging.Lock()
	defer f.logging.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	// Names and attributes may have changed since the commit: they belong to the
	// new layer. Content has not, which waits.
	old := f.layers[f.top()]
	if err := d.begun(); err != nil {
		return err
	}
	if err := old.ended(); err != nil {
		return err
	}
	count, err := f.newCount(path)
	if err == nil {
		err = then()
	}
	if err != nil {
		return errors.Join(err, old.begun())
	}
	f.countLog(old, f.tally())
	f.layers, f.counts = append(f.layers, d), append(f.counts, count)
	f.countLog(d, count)
	for n := range f.dirty {
		if n.nlink > 0 {
			f.countNode(n)
		}
	}
	f.garbage = nil // the old layer, which is not written any more, still tells of it
	f.fds.dropAll()
	return nil
}

// Close writes what the log has not heard of and lets go of the layers. Nobody may ask it
// any more: the last mount has gone, or [FS.HandOver] gave all to another. After an error
// the layers are as after a crash.
func (f *FS) Close() error {
	if f.readOnly {
		f.release()
		return nil
	}
	close(f.stop)
	f.stopped.Wait()
	f.mu.Lock()
	for _, n := range f.nodes {
		if n.nlink == 0 {
			f.destroy(n)
		}
	}
	f.mu.Unlock()
	err := f.commit(false)
	if err == nil {
		d := f.layers[f.top()]
		err = d.ended()
		f.countLog(d, f.tally())
	}
	f.release()
	return err
}

func (f *FS) release() {
	f.fds.dropAll()
	if f.quota != nil {
		f.quota.Close()
	}
	_ = f.each(func(d *dir, _ place) error { d.close(); return nil })
	if f.lower >= 0 {
		unix.Close(f.lower)
	}
}

// Mend brings the last layer of o into order after its server was killed. Errors: as
// those of [Open].
func Mend(o Options) error {
	f, err := Open(o)
	if err != nil {
		return err
	}
	return f.Close()
}
