// Package quota counts the disk space and inodes of layers, and limits them, across processes. It works on a
// file with counters and knows no mounted filesystem; package layer changes the counters.
package quota

import (
	"errors"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"github.com/snapfs/snapfs/internal/loopdev"
	"golang.org/x/sys/unix"
)

// Usage is the disk usage of layers: the bytes of content and logs in whole blocks, and the
// inodes that logs record.
type Usage struct{ Bytes, Inodes int64 }

// A Quota limits the total usage of several layers. It is a file with a counter for each
// layer, which each process that serves one of them maps into memory. There is no lock: a
// process first adds to its counter, and subtracts again if the sum exceeds the limit.
type Quota struct {
	mem   []byte
	head  *header
	slots []Slot
}

// A header is the beginning of a quota file in memory: the format, the limits in bytes and inodes (0 for
// none), and the number of slots that are or were in use.
type header struct {
	format, maxBytes, maxInodes, slots atomic.Int64
}

// A Slot counts the usage of one layer in a quota file. key identifies the layer; 0 is a free slot.
type Slot struct{ key, Bytes, Inodes, _ atomic.Int64 }

// ErrDamaged means that a quota file, which counts the disk usage of layers, is damaged.
var ErrDamaged = errors.New("the quota file is damaged")

const (
	quotaFormat = 0x31746f7571 // "quot1"
	quotaSize   = 256 << 10    // enough for 8191 layers
	slotSize    = int64(unsafe.Sizeof(Slot{}))
)

// Open maps the quota file at path, and creates it without a limit if it does not exist. It
// allocates all blocks at once, because writing to a mapped page for which there is no space
// would kill the process. Errors: those of files, [ErrDamaged].
func Open(path string) (_ *Quota, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() == 0 {
		loopdev.SetNoCopy(f) // on btrfs each change would need a new block, which a full disk does not have
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
	q := &Quota{mem: mem, head: (*header)(unsafe.Pointer(&mem[0]))}
	q.slots = unsafe.Slice((*Slot)(unsafe.Pointer(&mem[slotSize])), quotaSize/slotSize-1)
	if !q.head.format.CompareAndSwap(0, quotaFormat) && q.head.format.Load() != quotaFormat || q.head.slots.Load() > int64(len(q.slots)) {
		q.Close()
		return nil, &os.PathError{Op: "read", Path: path, Err: ErrDamaged}
	}
	return q, nil
}

// fillUp extends the quota file f with zeros to quotaSize bytes, so that all its blocks are allocated before
// it is mapped into memory.
func fillUp(f *os.File) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err == nil && end < quotaSize {
		_, err = f.Write(make([]byte, quotaSize-end))
	}
	return err
}

// Close unmaps the quota file, which counts the disk usage of layers. Neither the Quota nor any of its slots,
// the counters of single layers, may be used afterwards.
func (q *Quota) Close() { _ = unix.Munmap(q.mem) } // cannot fail: it is mapped

// SetLimit limits the disk usage of all layers that q counts together to most, for all processes at once. 0
// means no limit.
func (q *Quota) SetLimit(most Usage) {
	q.head.maxBytes.Store(most.Bytes)
	q.head.maxInodes.Store(most.Inodes)
}

// Limit returns the limit, in bytes and inodes, of the sum of all layers that q counts; 0 means none.
func (q *Quota) Limit() Usage {
	return Usage{q.head.maxBytes.Load(), q.head.maxInodes.Load()}
}

// Used returns the disk usage of all layers that q counts, together. Its limit is compared with this.
func (q *Quota) Used() (sum Usage) {
	for i := range q.inUse() {
		sum.Bytes += q.slots[i].Bytes.Load()
		sum.Inodes += q.slots[i].Inodes.Load()
	}
	return sum
}

func (q *Quota) inUse() int64 { return min(q.head.slots.Load(), int64(len(q.slots))) }

// SetUsage sets the counter of the layer at path to u. No process may have the layer open, since that would
// count too.
func (q *Quota) SetUsage(path string, u Usage) error {
	s, err := q.Slot(path)
	if err == nil {
		s.Set(u)
	}
	return err
}

// Retain frees the slots, the counters of single layers, of all layers except those at paths. The others must
// have been removed.
func (q *Quota) Retain(paths []string) {
	keys := map[int64]bool{}
	for _, p := range paths {
		keys[keyOf(p)] = true
	}
	for i := range q.inUse() {
		if s := &q.slots[i]; !keys[s.key.Load()] {
			s.Set(Usage{})
			s.key.Store(0)
		}
	}
}

// Slot returns the counter of the layer at path. A layer without one gets a free slot; ENOSPC means that none
// is free.
func (q *Quota) Slot(path string) (*Slot, error) {
	key := keyOf(path)
	for i := range q.inUse() {
		if q.slots[i].key.Load() == key {
			return &q.slots[i], nil
		}
	}
	for i := range q.slots {
		if q.slots[i].key.CompareAndSwap(0, key) {
			for n := q.head.slots.Load(); n <= int64(i); n = q.head.slots.Load() {
				q.head.slots.CompareAndSwap(n, int64(i)+1)
			}
			return &q.slots[i], nil
		}
	}
	return nil, &os.PathError{Op: "count", Path: path, Err: unix.ENOSPC}
}

// keyOf returns the key by which the counter of the layer at path is found in a quota file: a hash of the
// layer's name. Layer names are never reused.
func keyOf(path string) int64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, filepath.Base(path)) // never fails
	return int64(h.Sum64()>>1) | 1
}

// Set replaces by u the disk usage that the slot, the counter of one layer, holds.
func (s *Slot) Set(u Usage) {
	s.Bytes.Store(u.Bytes)
	s.Inodes.Store(u.Inodes)
}

// Usage returns the disk usage that the slot, the counter of one layer, holds.
func (s *Slot) Usage() Usage { return Usage{s.Bytes.Load(), s.Inodes.Load()} }

// Free returns how many bytes and inodes may still be added to the layers that q counts before its limit is
// reached.
func (q *Quota) Free() Usage {
	left, most := Usage{math.MaxInt64 / 2, math.MaxInt64 / 2}, q.Limit() // halved, so that adding to it cannot overflow
	if most == (Usage{}) {
		return left
	}
	used := q.Used()
	if most.Bytes > 0 {
		left.Bytes = most.Bytes - used.Bytes
	}
	if most.Inodes > 0 {
		left.Inodes = most.Inodes - used.Inodes
	}
	return left
}

// ClampStatfs lowers the sizes and free space in st, a result of statfs(2), to those that the quota allows.
func (q *Quota) ClampStatfs(st *unix.Statfs_t) {
	most, left := q.Limit(), q.Free()
	if block := uint64(st.Frsize); most.Bytes > 0 && block > 0 {
		free := uint64(max(left.Bytes, 0)) / block
		st.Blocks = uint64(most.Bytes) / block
		st.Bfree, st.Bavail = min(st.Bfree, free), min(st.Bavail, free)
	}
	if most.Inodes > 0 {
		st.Files, st.Ffree = uint64(most.Inodes), min(st.Ffree, uint64(max(left.Inodes, 0)))
	}
}
