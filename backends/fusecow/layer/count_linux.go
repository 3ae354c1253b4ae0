package layer

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// What layers hold is counted as it changes: each layer has a slot, of its own or of a
// quota. Content counts by the blocks that the filesystem has given it, which it
// tells at once, up to the end of the file: what a filesystem allocates ahead of itself
// is given back. Space that is about to be taken is added before, by what it can be at
// most, so that two who write at once never take more than there is.
//
// Counts and quota change under both freezing and mu, so that either is enough to
// read them.

// Hold has what the layers at some paths hold count in q from now on, and all be limited by it, or, with
// nil, in no quota. For those that were merged since they were opened somebody else counts. The quota is this filesystem's: it is closed when another follows, and
// by Close. After an error nothing has changed, and q is the caller's.
func (f *FS) Hold(q *Quota, paths []string) error {
	f.freezing.Lock()
	defer f.freezing.Unlock()
	f.logging.Lock()
	defer f.logging.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := make([]*slot, len(f.layers))
	for i := range counts {
		counts[i] = &slot{}
	}
	err := f.each(func(d *dir, at place) (err error) {
		if q != nil && at >= f.base && slices.Contains(paths, d.path) {
			counts[at], err = q.slot(d.path)
		}
		if err == nil {
			counts[at].set(f.counts[at].use())
		}
		return err
	})
	if err != nil {
		return err
	}
	if f.quota != nil {
		f.quota.Close()
	}
	f.counts, f.quota = counts, q
	return nil
}

// Use is what the topmost layer holds, and what all do that are not the base's.
func (f *FS) Use() (top, own Use) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, s := range f.counts[f.base:] {
		own.Bytes += s.bytes.Load()
		own.Nodes += s.nodes.Load()
	}
	return f.tally().use(), own
}

// tally is what the top layer holds.
func (f *FS) tally() *slot { return f.counts[f.top()] }

// newCount is the slot of a layer that comes on top.
func (f *FS) newCount(path string) (*slot, error) {
	if f.quota == nil {
		return &slot{}, nil
	}
	return f.quota.slot(path)
}

// reserve adds bytes that the top layer is about to hold, if they fit. Holds freezing.
func (f *FS) reserve(bytes int64) bool {
	s := f.tally()
	s.bytes.Add(bytes)
	if bytes <= 0 || f.quota == nil || f.quota.left().Bytes >= f.pending.Load() {
		return true
	}
	s.bytes.Add(-bytes)
	return false
}

// reserveSoon is reserve, by [FS.afterDeleted].
func (f *FS) reserveSoon(bytes int64) bool {
	return f.afterDeleted(func() bool { return f.reserve(bytes) })
}

// afterDeleted calls try, which takes room, and where there was none, each time that something
// deleted has gone, and says whether there was at last. A deleted file that a node still stands for may just have
// been closed, of which the kernel tells a moment later: for that it waits 10 ms, in all for a second at most. The
// caller does not hold mu or logging.
func (f *FS) afterDeleted(try func() bool) bool {
	const closing, most = 10 * time.Millisecond, time.Second
	for began := time.Now(); !try(); time.Sleep(closing / 10) {
		f.mu.RLock()
		some, open := len(f.garbage) > 0 || f.going.Load() > 0, f.unnamed().Bytes
		f.mu.RUnlock()
		switch waited := time.Since(began); {
		case some && waited <= most && f.commit(false) == nil:
		case !some && open > 0 && waited <= closing:
		default:
			return false
		}
	}
	return true
}

// unnamed is what nodes hold that have no name any more, and that maybe nobody has open.
// Cost: a look at each of them. Holds mu.
func (f *FS) unnamed() (sum Use) {
	for n := range f.loose {
		if n.told == f.top() {
			sum.Nodes++
		}
		if n.place == f.top() {
			sum.Bytes += n.held
		}
	}
	return sum
}

// reserveWrite reserves what a write of size bytes at an offset takes, or as much from
// its beginning as fits, and answers with how much of it may be written and what was
// reserved. Holds freezing and the lock of the content.
func (f *FS) reserveWrite(n *node, fd int, off, size int64) (fits, reserved int64) {
	if need := f.atMost(n, off, size); f.reserveSoon(need) {
		return size, need
	}
	for at := off; at < off+size; {
		next := min(f.down(at)+f.block, off+size)
		if f.holes(n, fd, f.down(at), f.down(at)+f.block) > 0 {
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

// atMost is what a range of a file takes that has nothing yet where it may have nothing.
func (f *FS) atMost(n *node, off, size int64) int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	from, end := f.down(off), f.up(off+size)
	if whole := f.up(n.size); n.held >= whole { // there is no hole
		from = max(from, whole)
	}
	return max(end-from, 0)
}

// holes is what a range of whole blocks takes that has no data. What was allocated and
// never written to is taken for a hole in a file that has others.
func (f *FS) holes(n *node, fd int, from, end int64) (sum int64) {
	if f.atMost(n, from, end-from) == 0 {
		return 0
	}
	for from < end {
		data, err := unix.Seek(fd, from, unix.SEEK_DATA)
		if err != nil || data >= end { // none follows, or the kernel cannot tell
			return sum + end - from
		}
		if sum += max(f.down(data)-from, 0); data < from {
			return sum
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return sum
		}
		from = f.up(hole)
	}
	return sum
}

// recount asks how much content of a node the top layer has now, of which some was
// reserved. Holds freezing and mu.
func (f *FS) recount(n *node, fd int, reserved int64) {
	held := n.held
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		held = f.heldOf(n, st.Blocks)
	}
	f.tally().bytes.Add(held - n.held - reserved)
	n.held = held
}

// heldOf is what blocks of 512 bytes count for.
func (f *FS) heldOf(n *node, blocks int64) int64 {
	if n.ahead {
		return blocks * 512
	}
	return min(blocks*512, f.up(n.size))
}

func (f *FS) down(n int64) int64 { return n - n%f.block }
func (f *FS) up(n int64) int64   { return f.down(n + f.block - 1) }

// room says whether the log may grow by some bytes more than it must, and by a record
// of a node that it has not yet. What is deleted already will have gone by then. Holds mu.
func (f *FS) room(bytes, nodes int64) error {
	if f.quota == nil {
		return nil
	}
	going := f.going.Load() // before what is left is asked: it is not to be too little
	left := f.quota.left()
	left.Bytes += going
	for _, g := range f.garbage {
		left.Bytes += g.held
	}
	bytes += f.pending.Load()
	if left.Bytes >= bytes && left.Nodes >= nodes {
		return nil
	}
	if soon := f.unnamed(); left.Bytes+soon.Bytes < bytes || left.Nodes+soon.Nodes < nodes {
		return unix.EDQUOT
	}
	return nil
}

// What the log takes for a node and a name, beside texts.
const (
	nodeRecord = 128
	nameRecord = 24
)

// countNode counts a node that the log of the top layer will tell of. Holds mu.
func (f *FS) countNode(n *node) {
	if _, known := f.dirty[n]; !known {
		f.pending.Add(n.recordSize())
	}
	if n.told != f.top() {
		n.own().told = f.top()
		f.tally().nodes.Add(1)
	}
}

// hold and unhold count the content of a node, where the top layer has it, and no more.
// Hold mu.
func (f *FS) hold(n *node) {
	if n.place == f.top() {
		f.tally().bytes.Add(n.held)
	}
}

func (f *FS) unhold(n *node) {
	if n.place == f.top() {
		f.tally().bytes.Add(-n.held)
	}
}

func (n *node) recordSize() int64 {
	size := nodeRecord + len(n.target)
	for name, value := range n.xattrs {
		size += nameRecord + len(name) + len(value)
	}
	if n.parts != nil {
		size += nodeRecord * len(n.parts.beneath)
	}
	return int64(size)
}

// uncountNode takes away a node that is no more. Holds mu.
func (f *FS) uncountNode(n *node) {
	if n.told == f.top() {
		n.told = nowhere
		f.tally().nodes.Add(-1)
	}
}

// countLog counts the log of a layer by its blocks.
func (f *FS) countLog(d *dir, s *slot) {
	now := f.up(d.size)
	s.bytes.Add(now - d.counted)
	d.counted = now
}

// Tally is what the layer at path holds, whose last place in its stack is at, as its log tells: which
// is all if it was closed in order. Cost: reading the log. Errors are those of files, and
// [ErrDamaged].
func Tally(path string, at int) (u Use, err error) {
	d, err := openDir(path, false)
	if err != nil {
		return u, err
	}
	defer d.close()
	f := &FS{}
	if f.block, err = blockOf(d.fd); err != nil {
		return u, err
	}
	held := map[uint64]int64{}
	err = d.records(func(kind byte, r *reader) {
		switch kind {
		case recordNode:
			n := new(node)
			r.node(n)
			if held[n.id] = n.held; n.place != place(at) {
				held[n.id] = 0
			}
		case recordGone:
			delete(held, r.num())
		default:
			r.skip(kind)
		}
	})
	for _, bytes := range held {
		u.Bytes += bytes
	}
	u.Bytes += f.up(d.size)
	u.Nodes = int64(len(held))
	return u, err
}

const blockSize = 4096

// blockOf is the unit that a filesystem gives space by.
func blockOf(fd int) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return 0, err
	}
	if st.Bsize < 512 || st.Bsize > 1<<20 { // what it likes to be read by
		return blockSize, nil
	}
	return st.Bsize, nil
}
