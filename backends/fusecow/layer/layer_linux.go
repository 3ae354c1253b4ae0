package layer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Options say of which directories [Open] makes a copy-on-write filesystem, and how it behaves.
type Options struct {
	// Lower is the directory that the filesystem shows below its layers and never writes to. Where this process
	// may mount, submounts of Lower are left out.
	Lower string
	// Layers are layer directories, the oldest first. All but the last are frozen. The last one takes the
	// changes; Open creates it, with its log, where it does not exist.
	Layers []string
	// Indexes holds, for each of Layers, the highest layer index that it occupies, in rising order: a layer
	// that [Merge] made occupies the indexes of the layers it replaced. nil means one index each.
	Indexes []int
	// Base is the number of first layers that belong to somebody else. Their content counts for no quota of
	// this filesystem.
	Base int
	// CopyUpLimit bounds the bytes that the first write to a lower file copies; 0 means 64
	// MiB. A larger file whose blocks cannot be shared becomes a sparse upper: only written
	// blocks are copied up. If the lower file changes afterwards, reads of its other blocks
	// fail with ESTALE. For content in a frozen layer or lower the limit is a 64th.
	CopyUpLimit int64
	// Since, unless zero, makes the filesystem record each lower file whose change time is Since or later when
	// its content is opened. See [FS.LateReads].
	Since vfs.Timestamp
	// ReadOnly means that no layer takes changes. Other processes may still write to the last one.
	ReadOnly bool
	// Frozen promises that nobody changes the lower, so that no originals need be saved.
	Frozen bool

	// repair makes Open treat the last layer's log as incomplete, even after a clean close.
	// cut, unless 0, is the offset at which reading that log stops.
	repair bool
	cut    int64
}

// An FS is an open copy-on-write filesystem: a lower directory tree with the layers above it, served on one
// FUSE connection, which may have many mounts. It holds the lock of its top layer until Close. Its locks are
// taken in this order: freezing, the content lock of an inode, logMu, mu.
type FS struct {
	lower *lower.Tree
	fds   *lower.FDCache
	// readOnly and the fields after it are options, which never change after Open.
	readOnly    bool
	frozen      bool
	copyUpLimit int64
	detaching   bool // Detach is running: no originals need be saved

	// freezing is held for reading by writers of content, for writing by Freeze.
	freezing sync.RWMutex
	layers   []*stackedLayer // by index; a merged layer occupies several. Guarded as in usage.
	namespace
	journal
	usage

	stop    chan struct{}
	stopped sync.WaitGroup
}

// namespace is the inode table of an [FS]: the inodes in memory, and the names that lead to them.
type namespace struct {
	mu     sync.RWMutex
	root   *inode
	inodes map[uint64]*inode // inodes that the kernel has looked up, and dirty ones
	// renumbered holds lower inodes whose number here differs from their number in the lower, by lower
	// identity. Of several with one identity it holds the latest.
	renumbered map[logfile.Identity]*inode
	// aliases are the further lower names by which an inode was looked up.
	aliases map[*inode][]*lower.Ref
	nextIno uint64 // number of the next new inode
	// unlinked are inodes in use that have no name: removed ones, and ones made by O_TMPFILE.
	unlinked map[*inode]struct{}
	// removedDirs holds the directories that were removed while the kernel still had them
	// open. The kernel never looks into such an inode again: one that comes back needs another
	// generation, which generations counts.
	removedDirs map[uint64]struct{}
	generations map[uint64]uint64
	onStale     []func(dir uint64, name string) // see OnStale
	listings    listings
}

// journal holds the changes of an [FS] that the log of its top layer lacks so far. namespace.mu guards it.
type journal struct {
	logMu sync.Mutex // held while the log is written
	// pendingLog estimates the bytes by which the next commit grows the log.
	pendingLog atomic.Int64
	// frames counts the frames written since Open, plus one for all earlier ones. durableFrame
	// is the last frame on stable storage.
	frames, durableFrame atomic.Int64
	// dirty and dirtyNames are the inodes and names that have changed since the last commit.
	dirty      map[*inode]struct{}
	dirtyNames map[nameKey]struct{}
	// garbage is the content of removed inodes whose removal the log does not record yet.
	garbage []deadContent
	// removing is the number of bytes that the running commit is deleting. They stay charged until then.
	removing atomic.Int64
	// originals are saved originals that the log does not record yet.
	originals []*logfile.Original
}

// A stackedLayer is an open layer directory of a filesystem, with the bytes that its log takes of a quota.
type stackedLayer struct {
	*logfile.Layer
	charged        int64 // bytes that the log counts for, in whole blocks
	nextCompaction int64 // length from which on the log may be compacted
}

// deadContent is a content file of a removed inode, to be deleted, and the bytes that a quota counts for it.
type deadContent struct {
	id      uint64
	charged int64
}

type nameKey struct {
	dir  *inode
	name string
}

const (
	maxFDs = 512
	// commitInterval is how long a change may be in memory only, and thus be lost if this process is killed.
	// fsync(2) does not wait for it.
	commitInterval = time.Second
)

// Open reads the layer directories of o and returns the filesystem that they make of the directory o.Lower.
// Cost: in proportion to the changes recorded in all layers. Errors: unix.EBUSY (the top layer is in use),
// [logfile.ErrDamaged], and those of files. After an error nothing has changed, except that a missing top
// layer may have been created, or content files without an inode moved to found/.
func Open(o Options) (_ *FS, err error) {
	if len(o.Layers) == 0 && !o.ReadOnly {
		return nil, errors.New("opening layers: no layer for changes")
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
		if err := f.openLayer(i, &o); err != nil {
			return nil, fmt.Errorf("opening the layer %s: %w", path, err)
		}
	}
	if !f.readOnly {
		f.nextIno = logfile.RandomIno()
		f.stopped.Go(f.commitPeriodically)
	}
	return f, nil
}

// Lower returns a path to the root of the lower directory tree. It works in this process while f is open,
// whatever is mounted at the original path by then.
func (f *FS) Lower() string { return "/proc/self/fd/" + strconv.Itoa(f.lower.RootFD()) }

// Hide makes these paths of the lower directory tree invisible, now and when they appear: [lower.Tree.Hide].
func (f *FS) Hide(paths []string) { f.lower.Hide(paths) }

// ReadOnly reports whether the filesystem refuses all changes, as one that shows a snapshot does.
func (f *FS) ReadOnly() bool { return f.readOnly }

// openRoot returns the filesystem that o describes without any layer; the caller adds each by openLayer.
func openRoot(o Options) (*FS, error) {
	fds := lower.NewFDCache(maxFDs)
	tree, st, err := lower.Open(o.Lower, fds, o.Since)
	if err != nil {
		return nil, err
	}
	f := &FS{
		lower: tree, fds: fds, readOnly: o.ReadOnly, frozen: o.Frozen,
		copyUpLimit: cmp.Or(o.CopyUpLimit, defaultCopyUpLimit), stop: make(chan struct{}),
		namespace: namespace{
			inodes: map[uint64]*inode{}, renumbered: map[logfile.Identity]*inode{}, aliases: map[*inode][]*lower.Ref{},
			nextIno: logfile.FirstOwnIno, unlinked: map[*inode]struct{}{},
			removedDirs: map[uint64]struct{}{}, generations: map[uint64]uint64{},
		},
		journal: journal{dirty: map[*inode]struct{}{}, dirtyNames: map[nameKey]struct{}{}},
		usage:   usage{block: quota.DefaultBlock, firstOwn: o.stack().Above(o.Base)},
	}
	f.frames.Store(1)
	ref := &lower.Ref{Identity: tree.IdentityOf(&st)}
	f.root = &inode{id: RootID, lower: ref, attr: attrOf(&st), lookups: 1, dirtyState: cleanState}
	f.root.ino, f.root.layer = st.Ino, logfile.NoContent
	f.inodes[RootID] = f.root
	return f, nil
}

func (o *Options) stack() *logfile.Stack { return &logfile.Stack{Layers: o.Layers, Indexes: o.Indexes} }

// push adds the layer d on top of the open ones, at all free indexes up to upTo (several for a merged layer).
func (f *FS) push(d *stackedLayer, upTo logfile.Index) {
	for f.top() < upTo {
		f.layers, f.slots = append(f.layers, d), append(f.slots, &quota.Slot{})
	}
}

// eachLayer calls do with each open layer, the oldest first, and the highest index that it occupies.
func (f *FS) eachLayer(do func(d *stackedLayer, at logfile.Index) error) error {
	for i, d := range f.layers {
		if i+1 < len(f.layers) && f.layers[i+1] == d {
			continue
		}
		if err := do(d, logfile.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// HasLayer reports whether the layer directory at path is one of those that make up this open filesystem.
func (f *FS) HasLayer(path string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.ContainsFunc(f.layers, func(d *stackedLayer) bool { return d.Path == path })
}

// isLayerAt reports whether the layer d has the index at; a merged layer has those of all it replaces.
func (f *FS) isLayerAt(d *stackedLayer, at logfile.Index) bool {
	return at >= 0 && int(at) < len(f.layers) && f.layers[at] == d
}

// openLayer opens the directory o.Layers[i] as the next layer and replays its log. It recovers the top layer
// if a killed process left it without closing it.
func (f *FS) openLayer(i int, o *Options) error {
	top := i == len(o.Layers)-1
	own := top && !f.readOnly
	l, err := logfile.Open(o.Layers[i], own)
	if err != nil {
		return err
	}
	d := &stackedLayer{Layer: l}
	if top {
		d.ReadLimit = o.cut
	}
	f.push(d, o.stack().Index(i))
	if f.block, err = quota.BlockSize(d.FD); err != nil {
		return err
	}
	clean, err := f.replay(d)
	f.pendingLog.Store(0)
	f.chargeLog(d, f.topSlot())
	if err != nil || !top {
		return err
	}
	if own && clean && d.Size == int64(len(logfile.Magic)) {
		if d.Torn, err = d.HasContent(); err != nil {
			return err
		}
	}
	if !clean || d.Torn || o.repair {
		if err := f.recover(o.repair); err != nil {
			return err
		}
	}
	if !own {
		return nil
	}
	if err := errors.Join(d.RemoveTemp(), d.TruncateTorn()); err != nil {
		return err
	}
	f.compactLog(d)
	defer f.chargeLog(d, f.topSlot())
	return d.MarkOpen()
}

func (f *FS) top() logfile.Index { return logfile.Index(len(f.layers) - 1) }

// commitPeriodically writes changes to the log every commitInterval, so that a kill loses no more than that.
func (f *FS) commitPeriodically() {
	tick := time.NewTicker(commitInterval)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
			// After an error the changes stay dirty: fsync, Sync and Close report it.
			_ = f.Commit(false)
		}
	}
}

// Sync writes all metadata changes, and the content of all files, to stable storage. Pages written through
// mappings reach f only when their programs, or the caller, sync the mount. Errors: those of files.
func (f *FS) Sync() error {
	if f.readOnly {
		return nil
	}
	f.mu.RLock()
	d := f.layers[f.top()]
	f.mu.RUnlock()
	if err := f.Commit(false); err != nil {
		return err
	}
	return unix.Syncfs(d.FD)
}

// Freeze makes the top layer read-only and puts a new layer, at path, on top. It calls then, with all changes
// locked out, when only an error of then can cancel the freeze. Programs may write meanwhile: each change
// ends up in one of the two layers. Cost: one commit. After an error nothing has changed, but path may exist.
func (f *FS) Freeze(path string, then func() error) (err error) {
	f.freezing.Lock()
	defer f.freezing.Unlock()
	if err := f.Commit(true); err != nil {
		return err
	}
	l, err := logfile.Open(path, true)
	if err != nil {
		return err
	}
	d := &stackedLayer{Layer: l}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	f.logMu.Lock()
	defer f.logMu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	// Metadata may have changed since the commit: those changes belong to the new layer. Content has not
	// changed, because writers wait for freezing.
	old := f.layers[f.top()]
	if err := d.MarkOpen(); err != nil {
		return err
	}
	if err := old.MarkClean(); err != nil {
		return err
	}
	count, err := f.newSlot(path)
	if err == nil {
		err = then()
	}
	if err != nil {
		return errors.Join(err, old.MarkOpen())
	}
	f.chargeLog(old, f.topSlot())
	f.layers, f.slots = append(f.layers, d), append(f.slots, count)
	f.chargeLog(d, count)
	for n := range f.dirty {
		if n.nlink > 0 {
			f.chargeInode(n)
		}
	}
	f.garbage = nil // the log of the old layer, which is final, still records these inodes
	f.fds.DropAll()
	return nil
}

// Close commits all changes to the log and releases the layers. The caller must have stopped using f: its
// last mount is gone, or [FS.HandOver] passed everything on. After an error the layers are as after a crash.
func (f *FS) Close() error {
	if f.readOnly {
		f.release()
		return nil
	}
	close(f.stop)
	f.stopped.Wait()
	f.mu.Lock()
	for _, n := range f.inodes {
		if n.nlink == 0 {
			f.destroy(n)
		}
	}
	f.mu.Unlock()
	err := f.Commit(false)
	if err == nil {
		d := f.layers[f.top()]
		err = d.MarkClean()
		f.chargeLog(d, f.topSlot())
	}
	f.release()
	return err
}

func (f *FS) release() {
	f.fds.DropAll()
	if f.quota != nil {
		f.quota.Close()
	}
	_ = f.eachLayer(func(d *stackedLayer, _ logfile.Index) error { d.Close(); return nil })
	f.lower.Close()
}

// Recover repairs the last layer of o after its server process was killed, as Open would, without using the
// filesystem. Errors are those of [Open].
func Recover(o Options) error {
	f, err := Open(o)
	if err != nil {
		return err
	}
	return f.Close()
}
