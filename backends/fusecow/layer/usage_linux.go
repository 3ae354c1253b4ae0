package layer

import (
	"slices"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"golang.org/x/sys/unix"
)

// usage counts the disk space and inodes of the layers of an [FS]. Each layer has a slot (a counter), of its
// own or of a quota. Content is charged by its allocated blocks, up to the end of the file. Space for a write
// is reserved beforehand by an upper bound, so that concurrent writers never exceed the quota together.
//
// The slots and the quota change under both freezing and mu, so holding either is enough to read them.
type usage struct {
	slots    []*quota.Slot // by layer index; a merged layer has the indexes of all its parts, and its slot at the highest
	quota    *quota.Quota  // limits the layers from firstOwn on; may be nil
	firstOwn logfile.Index // index of the first layer that counts for a quota; never changes
	block    int64         // allocation unit; never changes after Open
}

// SetQuota charges the layers at paths to q from now on and limits them by it; nil means no
// quota. f owns q afterwards, and closes it when another quota is set and in Close. After an
// error nothing has changed, and the caller still owns q.
func (f *FS) SetQuota(q *quota.Quota, paths []string) error {
	f.freezing.Lock()
	defer f.freezing.Unlock()
	f.logMu.Lock()
	defer f.logMu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := make([]*quota.Slot, len(f.layers))
	for i := range counts {
		counts[i] = &quota.Slot{}
	}
	err := f.eachLayer(func(d *stackedLayer, at logfile.Index) (err error) {
		if q != nil && at >= f.firstOwn && slices.Contains(paths, d.Path) {
			counts[at], err = q.Slot(d.Path)
		}
		if err == nil {
			counts[at].Set(f.slots[at].Usage())
		}
		return err
	})
	if err != nil {
		return err
	}
	if f.quota != nil {
		f.quota.Close()
	}
	f.slots, f.quota = counts, q
	return nil
}

// topSlot returns the counter of the top layer's disk usage, which changes of the filesystem increase.
func (f *FS) topSlot() *quota.Slot { return f.slots[f.top()] }

// newSlot returns a counter of disk space for a new top layer at path. If the filesystem has a quota, the
// counter is in the quota's file and counts for its limit; otherwise it has no limit.
func (f *FS) newSlot(path string) (*quota.Slot, error) {
	if f.quota == nil {
		return &quota.Slot{}, nil
	}
	return f.quota.Slot(path)
}

// reserve charges bytes to the top layer and returns true, or returns false if the quota has no room.
// Negative bytes release a charge. The caller holds freezing.
func (f *FS) reserve(bytes int64) bool {
	s := f.topSlot()
	s.Bytes.Add(bytes)
	if bytes <= 0 || f.quota == nil || f.quota.Free().Bytes >= f.pendingLog.Load() {
		return true
	}
	s.Bytes.Add(-bytes)
	return false
}

// reserveWait is [FS.reserve], but waits for deleted content to free space, see [FS.retryAfterDelete].
func (f *FS) reserveWait(bytes int64) bool {
	return f.retryAfterDelete(func() bool { return f.reserve(bytes) })
}

// retryAfterDelete calls try, which allocates space, and calls it again each time that deleted content has
// freed some. It reports whether try succeeded. A deleted file that is still open may just have been closed,
// which the kernel reports a moment later; retryAfterDelete waits 10 ms for that, and 1 s in all at most. The
// caller must not hold mu or logMu.
func (f *FS) retryAfterDelete(try func() bool) bool {
	const closing, most = 10 * time.Millisecond, time.Second
	for began := time.Now(); !try(); time.Sleep(closing / 10) {
		f.mu.RLock()
		some, open := len(f.garbage) > 0 || f.removing.Load() > 0, f.unlinkedUsage().Bytes
		f.mu.RUnlock()
		switch waited := time.Since(began); {
		case some && waited <= most && f.Commit(false) == nil:
		case !some && open > 0 && waited <= closing:
		default:
			return false
		}
	}
	return true
}

// unlinkedUsage returns the usage of inodes without a name, which may be freed soon. Cost: a look at each of
// them. The caller holds mu.
func (f *FS) unlinkedUsage() (sum quota.Usage) {
	for n := range f.unlinked {
		if n.recordedIn == f.top() {
			sum.Inodes++
		}
		if n.layer == f.top() {
			sum.Bytes += n.charged
		}
	}
	return sum
}

// reserveWrite reserves space for a write of size bytes at off, or for as much of its beginning as fits. It
// returns how many bytes may be written, and the reservation. The caller holds freezing and the content lock.
func (f *FS) reserveWrite(n *inode, fd int, off, size int64) (fits, reserved int64) {
	if need := f.maxAlloc(n, off, size); f.reserveWait(need) {
		return size, need
	}
	for at := off; at < off+size; {
		next := min(f.alignDown(at)+f.block, off+size)
		if f.holeBytes(n, fd, f.alignDown(at), f.alignDown(at)+f.block) > 0 {
			if !f.reserve(f.block) {
				break
			}
			reserved += f.block
		}
		fits += next - at
		at = next
	}
	return fits, reserved
}

// maxAlloc returns an upper bound for the bytes that a write to [off, off+size) of n may newly allocate.
func (f *FS) maxAlloc(n *inode, off, size int64) int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	from, end := f.alignDown(off), f.alignUp(off+size)
	if whole := f.alignUp(n.size); n.charged >= whole { // the file has no holes
		from = max(from, whole)
	}
	return max(end-from, 0)
}

// holeBytes returns how many bytes of the range [from, end), of whole blocks, are not allocated. In a file
// with holes, unwritten allocations count as holes.
func (f *FS) holeBytes(n *inode, fd int, from, end int64) (sum int64) {
	if f.maxAlloc(n, from, end-from) == 0 {
		return 0
	}
	for from < end {
		data, err := unix.Seek(fd, from, unix.SEEK_DATA)
		if err != nil || data >= end { // no more data, or the kernel cannot tell
			return sum + end - from
		}
		if sum += max(f.alignDown(data)-from, 0); data < from {
			return sum
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return sum
		}
		from = f.alignUp(hole)
	}
	return sum
}

// recharge sets the quota charge of n to the space that its file fd occupies, and releases the reserved
// bytes. The caller holds freezing and mu.
func (f *FS) recharge(n *inode, fd int, reserved int64) {
	charged := n.charged
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		charged = f.chargeOf(n, st.Blocks)
	}
	f.topSlot().Bytes.Add(charged - n.charged - reserved)
	n.charged = charged
}

// chargeOf returns the bytes that a quota counts for the content of n, which takes blocks of 512 bytes.
func (f *FS) chargeOf(n *inode, blocks int64) int64 {
	if n.preallocated {
		return blocks * 512
	}
	return min(blocks*512, f.alignUp(n.size))
}

func (f *FS) alignDown(n int64) int64 { return n - n%f.block }
func (f *FS) alignUp(n int64) int64   { return f.alignDown(n + f.block - 1) }

// checkLogSpace returns EDQUOT unless the quota lets the log grow by that many bytes and new inodes. Space
// that deletions free soon counts as free. The caller holds mu.
func (f *FS) checkLogSpace(bytes, inodes int64) error {
	if f.quota == nil {
		return nil
	}
	going := f.removing.Load() // read before Free: otherwise too little might count as free
	left := f.quota.Free()
	left.Bytes += going
	for _, g := range f.garbage {
		left.Bytes += g.charged
	}
	bytes += f.pendingLog.Load()
	if left.Bytes >= bytes && left.Inodes >= inodes {
		return nil
	}
	if soon := f.unlinkedUsage(); left.Bytes+soon.Bytes < bytes || left.Inodes+soon.Inodes < inodes {
		return unix.EDQUOT
	}
	return nil
}

// Estimated bytes of the log record of an inode and of that of a name, without the strings in them.
const (
	inodeRecordSize = 128
	nameRecordSize  = 24
)

// chargeInode charges to the quota that the log of the top layer will record n. The caller holds mu.
func (f *FS) chargeInode(n *inode) {
	if _, known := f.dirty[n]; !known {
		f.pendingLog.Add(n.recordSize())
	}
	if n.recordedIn != f.top() {
		n.ownState().recordedIn = f.top()
		f.topSlot().Inodes.Add(1)
	}
}

// chargeContent and unchargeContent add and remove the charge of n's content in the top layer, under mu.
func (f *FS) chargeContent(n *inode) {
	if n.layer == f.top() {
		f.topSlot().Bytes.Add(n.charged)
	}
}

func (f *FS) unchargeContent(n *inode) {
	if n.layer == f.top() {
		f.topSlot().Bytes.Add(-n.charged)
	}
}

func (n *inode) recordSize() int64 {
	size := inodeRecordSize + len(n.target)
	for name, value := range n.xattrs {
		size += nameRecordSize + len(name) + len(value)
	}
	if n.sparse != nil {
		size += inodeRecordSize * len(n.sparse.Sources)
	}
	return int64(size)
}

// unchargeInode subtracts the removed inode n from the usage that the quota limits. The caller holds mu.
func (f *FS) unchargeInode(n *inode) {
	if n.recordedIn == f.top() {
		n.recordedIn = logfile.NoContent
		f.topSlot().Inodes.Add(-1)
	}
}

// chargeLog makes the slot s, the counter of the layer d, count the disk blocks that the log of d takes.
func (f *FS) chargeLog(d *stackedLayer, s *quota.Slot) {
	now := f.alignUp(d.Size)
	s.Bytes.Add(now - d.charged)
	d.charged = now
}
