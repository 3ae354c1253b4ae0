package layer

import (
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/backends/fusecow/layer/sparse"
	"golang.org/x/sys/unix"
)

// copyUpEdges copies up those blocks of the sparse upper n that a write to [off, end) changes only in part. A
// block written up to the file's end needs no copy. The caller holds the content lock and writeMu.
func (f *FS) copyUpEdges(n *inode, p *sparse.Upper, fd int, off, end int64) error {
	f.mu.RLock()
	size := n.size
	f.mu.RUnlock()
	unit := max(f.block, quota.DefaultBlock)
	var last int64 = -1
	for _, at := range [2]int64{off, end - 1} {
		from := at - at%unit
		to := min(from+unit, size)
		if from == last || from >= p.Shown() || from >= off && to <= end {
			continue
		}
		last = from
		if data, hole, err := sparse.Extent(fd, from, to); err != nil || data == from && hole == to {
			if err != nil {
				return err
			}
			continue
		}
		buf := make([]byte, to-from)
		if err := f.sparseContent(n, p).Read(buf, from); err != nil {
			return err
		}
		if !f.reserveWait(unit) {
			return unix.EDQUOT
		}
		if err := f.writeReserved(n, fd, buf, from, unit); err != nil {
			return err
		}
	}
	return nil
}

// writeReserved writes data at offset at of n, open as fd, and charges its space in place of reserved bytes.
func (f *FS) writeReserved(n *inode, fd int, data []byte, at, reserved int64) error {
	err := sparse.WriteAll(fd, data, at)
	f.mu.Lock()
	f.recharge(n, fd, reserved)
	f.mu.Unlock()
	return err
}

// skipShown returns the start of the part of [off, end) at which no lower file shows through the sparse upper
// n. Only that part may be allocated: once the kernel has read allocated, unwritten space, be it by
// readahead, it reports it as data, and zeros would then hide the lower files. The caller holds the content
// lock and writeMu.
func (f *FS) skipShown(n *inode, p *sparse.Upper, fd int, off, end int64) (int64, error) {
	shown := p.Shown()
	if end <= shown {
		return end, nil
	}
	return max(off, shown), f.copyUpEdges(n, p, fd, shown, end) // the block in which the sources end
}

// zeroShown zeroes the part of [off, end) in which lower files show through the sparse upper n, since a hole
// shows them. It returns the start of the rest, to punch. The caller holds the content lock and writeMu.
func (f *FS) zeroShown(n *inode, p *sparse.Upper, fd int, off, end int64) (int64, error) {
	shown := min(end, p.Shown())
	if off >= shown {
		return off, nil
	}
	if err := f.copyUpEdges(n, p, fd, off, shown); err != nil {
		return off, err
	}
	zeros := make([]byte, 1<<20)
	for off < shown {
		next, err := f.sparseContent(n, p).NextData(off, shown)
		if err != nil {
			return off, err
		}
		if off = next; off == shown {
			break
		}
		size, reserved := f.reserveWrite(n, fd, off, min(int64(len(zeros)), shown-off))
		if size == 0 {
			return off, unix.EDQUOT
		}
		if err := f.writeReserved(n, fd, zeros[:size], off, reserved); err != nil {
			return off, err
		}
		off += size
	}
	return off, nil
}
