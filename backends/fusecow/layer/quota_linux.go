package layer

import (
	"errors"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A Use is what layers hold: bytes in whole blocks, of content and of logs, and nodes
// that a log tells of.
type Use struct{ Bytes, Nodes int64 }

// A Quota is the most that some layers may hold all together, and what each of them
// holds: a file that each process that serves one of them has mapped. Nobody locks it:
// who adds says so first, and takes it back where the sum is too much then.
type Quota struct {
	mem  []byte
	head *quotaHead
	all  []slot
}

// quotaHead begins the file. A most of 0 is none.
type quotaHead struct {
	format, mostBytes, mostNodes, slots atomic.Int64
}

// A slot is what one layer holds, by its key. One without a key is free.
type slot struct{ key, bytes, nodes, _ atomic.Int64 }

const (
	quotaFormat = 0x31746f7571 // "quot1"
	quotaSize   = 256 << 10    // 8191 layers
	slotSize    = int64(unsafe.Sizeof(slot{}))
)

// OpenQuota maps the file at path, which is made where there is none, without a limit.
// Its blocks are there from the beginning: a page of a mapped file that finds no room
// kills who writes to it. Errors: those of files, [ErrDamaged].
func OpenQuota(path string) (_ *Quota, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() == 0 {
		kernel.SetNoCopy(f) // on btrfs each change would want a block, which a full disk does not have
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, quotaSize); err != nil {
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return nil, &os.PathError{Op: "fallocate", Path: path, Err: err}
		}
		if err := fillUp(f); err != nil {
			return nil, err
		}
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, quotaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	q := &Quota{mem: mem, head: (*quotaHead)(unsafe.Pointer(&mem[0]))}
	q.all = unsafe.Slice((*slot)(unsafe.Pointer(&mem[slotSize])), quotaSize/slotSize-1)
	if !q.head.format.CompareAndSwap(0, quotaFormat) && q.head.format.Load() != quotaFormat || q.head.slots.Load() > int64(len(q.all)) {
		q.Close()
		return nil, &os.PathError{Op: "read", Path: path, Err: ErrDamaged}
	}
	return q, nil
}

// fillUp writes zeros where the file ends, and nothing over what is there.
func fillUp(f *os.File) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err == nil && end < quotaSize {
		_, err = f.Write(make([]byte, quotaSize-end))
	}
	return err
}

// Close unmaps it. No layer may count in it any more.
func (q *Quota) Close() { _ = unix.Munmap(q.mem) } // it is mapped

// Limit sets the most, for all processes at once; 0 is none.
func (q *Quota) Limit(most Use) {
	q.head.mostBytes.Store(most.Bytes)
	q.head.mostNodes.Store(most.Nodes)
}

// Most is the limit.
func (q *Quota) Most() Use {
	return Use{q.head.mostBytes.Load(), q.head.mostNodes.Load()}
}

// Used is what all its layers hold.
func (q *Quota) Used() (sum Use) {
	for i := range q.inUse() {
		sum.Bytes += q.all[i].bytes.Load()
		sum.Nodes += q.all[i].nodes.Load()
	}
	return sum
}

func (q *Quota) inUse() int64 { return min(q.head.slots.Load(), int64(len(q.all))) }

// Count sets what the layer at path holds, which nobody has open.
func (q *Quota) Count(path string, u Use) error {
	s, err := q.slot(path)
	if err == nil {
		s.set(u)
	}
	return err
}

// Keep forgets the layers that are not among those at paths.
func (q *Quota) Keep(paths []string) {
	keys := map[int64]bool{}
	for _, p := range paths {
		keys[keyOf(p)] = true
	}
	for i := range q.inUse() {
		if s := &q.all[i]; !keys[s.key.Load()] {
			s.set(Use{})
			s.key.Store(0)
		}
	}
}

// slot is that of the layer at path, which gets one. ENOSPC: there are too many.
func (q *Quota) slot(path string) (*slot, error) {
	key := keyOf(path)
	for i := range q.inUse() {
		if q.all[i].key.Load() == key {
			return &q.all[i], nil
		}
	}
	for i := range q.all {
		if q.all[i].key.CompareAndSwap(0, key) {
			for n := q.head.slots.Load(); n <= int64(i); n = q.head.slots.Load() {
				q.head.slots.CompareAndSwap(n, int64(i)+1)
			}
			return &q.all[i], nil
		}
	}
	return nil, &os.PathError{Op: "count", Path: path, Err: unix.ENOSPC}
}

// keyOf is the key of a layer: of its name, which is never another's.
func keyOf(path string) int64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, filepath.Base(path)) // it never fails
	return int64(h.Sum64()>>1) | 1
}

func (s *slot) set(u Use) {
	s.bytes.Store(u.Bytes)
	s.nodes.Store(u.Nodes)
}

func (s *slot) use() Use { return Use{s.bytes.Load(), s.nodes.Load()} }

// left is how much may be added now.
func (q *Quota) left() Use {
	left, most := Use{math.MaxInt64 / 2, math.MaxInt64 / 2}, q.Most() // to which may be added
	if most == (Use{}) {
		return left
	}
	used := q.Used()
	if most.Bytes > 0 {
		left.Bytes = most.Bytes - used.Bytes
	}
	if most.Nodes > 0 {
		left.Nodes = most.Nodes - used.Nodes
	}
	return left
}

// limit has statfs(2) tell of no more than the limit.
func (q *Quota) limit(st *unix.Statfs_t) {
	most, left := q.Most(), q.left()
	if block := uint64(st.Frsize); most.Bytes > 0 && block > 0 {
		free := uint64(max(left.Bytes, 0)) / block
		st.Blocks = uint64(most.Bytes) / block
		st.Bfree, st.Bavail = min(st.Bfree, free), min(st.Bavail, free)
	}
	if most.Nodes > 0 {
		st.Files, st.Ffree = uint64(most.Nodes), min(st.Ffree, uint64(max(left.Nodes, 0)))
	}
}
