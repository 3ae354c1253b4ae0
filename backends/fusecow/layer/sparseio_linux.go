package layer

import (
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// readAll fills buf from off. Bytes beyond the end of the file are zeros.
func readAll(fd int, buf []byte, off int64) (int, error) {
	done := 0
	for done < len(buf) {
		k, err := unix.Pread(fd, buf[done:], off+int64(done))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return done, err
		case k == 0:
			clear(buf[done:])
			return len(buf), nil
		}
		done += max(k, 0)
	}
	return done, nil
}

// extent returns the first range of data in [from, end), or end, end if there is none.
func extent(fd int, from, end int64) (data, hole int64, err error) {
	data, err = unix.Seek(fd, from, unix.SEEK_DATA)
	if err == unix.ENXIO || err == nil && data >= end {
		return end, end, nil
	}
	if err == nil {
		hole, err = unix.Seek(fd, data, unix.SEEK_HOLE)
	}
	return data, min(hole, end), err
}

// openLevel returns a descriptor of level 0, the upper file, or of the source level-1, and the offset up to
// which it is visible.
func (f *FS) openLevel(n *inode, p *sparseUpper, level int) (d *lower.FD, until int64, err error) {
	if level == 0 {
		d, err = f.openContent(n)
		return d, wholeFile, err
	}
	s := &p.Sources[level-1]
	d, err = f.openContentIn(n, s.Layer, s.File)
	return d, s.Until, err
}

// readLevel fills buf with what a level and the sources below it show. The caller holds the content lock.
func (f *FS) readLevel(n *inode, p *sparseUpper, level int, buf []byte, off int64) error {
	d, until, err := f.openLevel(n, p, level)
	if err != nil {
		return err
	}
	defer f.fds.Put(d)
	if rest := max(until-off, 0); rest < int64(len(buf)) {
		clear(buf[rest:])
		buf = buf[:rest]
	}
	if level == len(p.Sources) {
		if _, err = readAll(d.Num, buf, off); err == nil && level > 0 {
			err = checkSource(&p.Sources[level-1], d.Num)
		}
		return err
	}
	for len(buf) > 0 {
		data, hole, err := extent(d.Num, off, off+int64(len(buf)))
		if err == nil && data > off {
			err = f.readLevel(n, p, level+1, buf[:data-off], off)
		}
		if err == nil {
			_, err = readAll(d.Num, buf[data-off:hole-off], data)
		}
		if err != nil {
			return err
		}
		buf, off = buf[hole-off:], hole
	}
	return nil
}

// checkSource returns ESTALE for a source in the lower that was written to since it became one.
func checkSource(s *logfile.Source, fd int) error {
	if s.Layer != logfile.InLower {
		return nil
	}
	st, err := vfs.Lstat(fd, "")
	if err == nil && (st.Size != s.Size || logfile.At(st.MTime.Sec, st.MTime.Nsec) != s.Mtime) {
		err = unix.ESTALE
	}
	return err
}

// nextData returns the first offset from off on at which any level has data, or end.
func (f *FS) nextData(n *inode, p *sparseUpper, level int, off, end int64) (int64, error) {
	d, until, err := f.openLevel(n, p, level)
	if err != nil {
		return 0, err
	}
	defer f.fds.Put(d)
	next, _, err := extent(d.Num, off, max(min(end, until), off))
	if err == nil && level > 0 {
		err = checkSource(&p.Sources[level-1], d.Num)
	}
	if next == max(min(end, until), off) {
		next = end
	}
	if err != nil || level == len(p.Sources) || next == off {
		return next, err
	}
	lower, err := f.nextData(n, p, level+1, off, next)
	return lower, err
}

// nextHole returns the first offset from off on at which no level has data.
func (f *FS) nextHole(n *inode, p *sparseUpper, off, end int64) (int64, error) {
	for off < end {
		before := off
		for level := 0; level <= len(p.Sources); level++ {
			d, until, err := f.openLevel(n, p, level)
			if err != nil {
				return 0, err
			}
			data, hole, err := extent(d.Num, off, max(min(end, until), off))
			if err == nil && level > 0 {
				err = checkSource(&p.Sources[level-1], d.Num)
			}
			f.fds.Put(d)
			if err != nil {
				return 0, err
			}
			if data == off {
				off = hole
			}
		}
		if off == before {
			break
		}
	}
	return off, nil
}

// copyUpEdges copies up the blocks that a write to [off, end) would change only in part. A block that the write
// covers up to the end of the file needs no copy. The caller holds the content lock and writeMu.
func (f *FS) copyUpEdges(n *inode, p *sparseUpper, fd int, off, end int64) error {
	f.mu.RLock()
	size := n.size
	f.mu.RUnlock()
	unit := max(f.block, blockSize)
	var last int64 = -1
	for _, at := range [2]int64{off, end - 1} {
		from := at - at%unit
		to := min(from+unit, size)
		if from == last || from >= p.shown() || from >= off && to <= end {
			continue
		}
		last = from
		if data, hole, err := extent(fd, from, to); err != nil || data == from && hole == to {
			if err != nil {
				return err
			}
			continue
		}
		buf := make([]byte, to-from)
		if err := f.readLevel(n, p, 0, buf, from); err != nil {
			return err
		}
		if !f.reserveWait(unit) {
			return unix.EDQUOT
		}
		err := writeAll(fd, buf, from)
		f.mu.Lock()
		f.recharge(n, fd, unit)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// skipShown returns the start of the part of [off, end) that lies beyond all sources. Only that part may be
// allocated: once the kernel has read allocated, unwritten space, be it by readahead, it reports it as data,
// and zeros would then hide the sources. The caller holds the content lock and writeMu.
func (f *FS) skipShown(n *inode, p *sparseUpper, fd int, off, end int64) (int64, error) {
	shown := p.shown()
	if end <= shown {
		return end, nil
	}
	return max(off, shown), f.copyUpEdges(n, p, fd, shown, end) // the block in which the sources end
}

// zeroShown writes zeros to the part of [off, end) in which sources show through, in place of punching a hole.
// It returns the start of the rest, which can be punched. The caller holds the content lock and writeMu.
func (f *FS) zeroShown(n *inode, p *sparseUpper, fd int, off, end int64) (int64, error) {
	shown := min(end, p.shown())
	if off >= shown {
		return off, nil
	}
	if err := f.copyUpEdges(n, p, fd, off, shown); err != nil {
		return off, err
	}
	zeros := make([]byte, 1<<20)
	for off < shown {
		next, err := f.nextData(n, p, 0, off, shown)
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
		err = writeAll(fd, zeros[:size], off)
		f.mu.Lock()
		f.recharge(n, fd, reserved)
		f.mu.Unlock()
		if err != nil {
			return off, err
		}
		off += size
	}
	return off, nil
}
