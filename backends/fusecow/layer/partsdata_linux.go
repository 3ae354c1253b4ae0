package layer

import (
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// readAll fills buf; what a file is shorter by is zeros.
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

// extent is the first range of a file between two bytes that has data; end, end: none.
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

// part answers with a descriptor of the content at a level, 0 being the node's own, and
// how far it is shown.
func (f *FS) part(n *node, p *parts, level int) (d *fd, until int64, err error) {
	if level == 0 {
		d, err = f.source(n)
		return d, everything, err
	}
	s := &p.beneath[level-1]
	d, err = f.sourceAt(n, s.place, s.file)
	return d, s.until, err
}

// readPart fills buf with what is shown of a level and those below it. Holds the lock
// of the content.
func (f *FS) readPart(n *node, p *parts, level int, buf []byte, off int64) error {
	d, until, err := f.part(n, p, level)
	if err != nil {
		return err
	}
	defer f.fds.put(d)
	if rest := max(until-off, 0); rest < int64(len(buf)) {
		clear(buf[rest:])
		buf = buf[:rest]
	}
	if level == len(p.beneath) {
		if _, err = readAll(d.n, buf, off); err == nil && level > 0 {
			err = p.beneath[level-1].unchanged(d.n)
		}
		return err
	}
	for len(buf) > 0 {
		data, hole, err := extent(d.n, off, off+int64(len(buf)))
		if err == nil && data > off {
			err = f.readPart(n, p, level+1, buf[:data-off], off)
		}
		if err == nil {
			_, err = readAll(d.n, buf[data-off:hole-off], data)
		}
		if err != nil {
			return err
		}
		buf, off = buf[hole-off:], hole
	}
	return nil
}

// unchanged is ESTALE for a file of the tree below that was written to since.
func (s *stratum) unchanged(fd int) error {
	if s.place != below {
		return nil
	}
	st, err := kernel.Lstat(fd, "")
	if err == nil && (st.Size != s.size || At(st.MTime.Sec, st.MTime.Nsec) != s.mtime) {
		err = unix.ESTALE
	}
	return err
}

// nextData is the first byte from off on that some level has, or end.
func (f *FS) nextData(n *node, p *parts, level int, off, end int64) (int64, error) {
	d, until, err := f.part(n, p, level)
	if err != nil {
		return 0, err
	}
	defer f.fds.put(d)
	next, _, err := extent(d.n, off, max(min(end, until), off))
	if err == nil && level > 0 {
		err = p.beneath[level-1].unchanged(d.n)
	}
	if next == max(min(end, until), off) {
		next = end
	}
	if err != nil || level == len(p.beneath) || next == off {
		return next, err
	}
	lower, err := f.nextData(n, p, level+1, off, next)
	return lower, err
}

// nextHole is the first byte from off on that no level has.
func (f *FS) nextHole(n *node, p *parts, off, end int64) (int64, error) {
	for off < end {
		before := off
		for level := 0; level <= len(p.beneath); level++ {
			d, until, err := f.part(n, p, level)
			if err != nil {
				return 0, err
			}
			data, hole, err := extent(d.n, off, max(min(end, until), off))
			if err == nil && level > 0 {
				err = p.beneath[level-1].unchanged(d.n)
			}
			f.fds.put(d)
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

// fill brings up those blocks that a write to a range would change a part of, but for
// what it reaches the end of the file in. Holds the lock of the content, and writing.
func (f *FS) fill(n *node, p *parts, fd int, off, end int64) error {
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
		if err := f.readPart(n, p, 0, buf, from); err != nil {
			return err
		}
		if !f.reserveSoon(unit) {
			return unix.EDQUOT
		}
		err := writeAll(fd, buf, from)
		f.mu.Lock()
		f.recount(n, fd, unit)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// passParts answers with what of a range lies above all that is shown from below, which alone
// may be allocated: the kernel takes what is allocated, and was never written to, for data once it
// has read it, be it ahead, and zeros would be shown in the place of what is below. Holds the lock of the
// content, and writing.
func (f *FS) passParts(n *node, p *parts, fd int, off, end int64) (int64, error) {
	shown := p.shown()
	if end <= shown {
		return end, nil
	}
	return max(off, shown), f.fill(n, p, fd, shown, end) // the block that it ends in
}

// clearParts has a range of a file be zeros, as fallocate(2) does that punches a hole, and
// answers with what is left of it above all that is shown from below, which has to be
// punched. Holds the lock of the content, and writing.
func (f *FS) clearParts(n *node, p *parts, fd int, off, end int64) (int64, error) {
	shown := min(end, p.shown())
	if off >= shown {
		return off, nil
	}
	if err := f.fill(n, p, fd, off, shown); err != nil {
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
		f.recount(n, fd, reserved)
		f.mu.Unlock()
		if err != nil {
			return off, err
		}
		off += size
	}
	return off, nil
}
