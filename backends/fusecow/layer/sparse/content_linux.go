package sparse

import (
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Content reads a sparse upper: a file whose holes show the content of other files, its sources. Level 0 is
// the upper file, level i+1 the i-th source.
type Content struct {
	*Upper
	// Open opens a source, or the upper itself if s is nil. Put releases what it returned.
	Open func(s *logfile.Source) (*lower.FD, error)
	Put  func(*lower.FD)
}

// Read fills buf with the content of a sparse upper from offset off: the data of the upper file, and through
// its holes that of other files, its sources.
func (c *Content) Read(buf []byte, off int64) error { return c.readLevel(0, buf, off) }

// NextData returns the first offset in [off, end) at which the upper file or a source has data, or end.
func (c *Content) NextData(off, end int64) (int64, error) { return c.nextData(0, off, end) }

// open returns a descriptor of the file at a level (0 is the upper file, else the source level-1), and the
// offset up to which that file is visible. The caller must release the descriptor with Put.
func (c *Content) open(level int) (d *lower.FD, until int64, err error) {
	if level == 0 {
		d, err = c.Open(nil)
		return d, 1<<63 - 1, err
	}
	s := &c.Sources[level-1]
	d, err = c.Open(s)
	return d, s.Until, err
}

// readLevel fills buf with the bytes at off that the file at this level shows: its data, and through its
// holes the sources of higher levels. The caller holds the content lock.
func (c *Content) readLevel(level int, buf []byte, off int64) error {
	d, until, err := c.open(level)
	if err != nil {
		return err
	}
	defer c.Put(d)
	if rest := max(until-off, 0); rest < int64(len(buf)) {
		clear(buf[rest:])
		buf = buf[:rest]
	}
	if level == len(c.Sources) {
		if _, err = ReadAll(d.Num, buf, off); err == nil && level > 0 {
			err = checkSource(&c.Sources[level-1], d.Num)
		}
		return err
	}
	for len(buf) > 0 {
		data, hole, err := Extent(d.Num, off, off+int64(len(buf)))
		if err == nil && data > off {
			err = c.readLevel(level+1, buf[:data-off], off)
		}
		if err == nil {
			_, err = ReadAll(d.Num, buf[data-off:hole-off], data)
		}
		if err != nil {
			return err
		}
		buf, off = buf[hole-off:], hole
	}
	return nil
}

// checkSource returns ESTALE if fd, the source s in the lower, was written to since it became a source: its
// bytes are then not those of the sandbox.
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

// nextData returns the first offset in [off, end) at which the file of this level, or a source below it, has
// data, or end.
func (c *Content) nextData(level int, off, end int64) (int64, error) {
	d, until, err := c.open(level)
	if err != nil {
		return 0, err
	}
	defer c.Put(d)
	next, _, err := Extent(d.Num, off, max(min(end, until), off))
	if err == nil && level > 0 {
		err = checkSource(&c.Sources[level-1], d.Num)
	}
	if next == max(min(end, until), off) {
		next = end
	}
	if err != nil || level == len(c.Sources) || next == off {
		return next, err
	}
	return c.nextData(level+1, off, next)
}

// NextHole returns the first offset in [off, end) at which neither the upper file nor any source has data, or
// end.
func (c *Content) NextHole(off, end int64) (int64, error) {
	for off < end {
		before := off
		for level := 0; level <= len(c.Sources); level++ {
			d, until, err := c.open(level)
			if err != nil {
				return 0, err
			}
			data, hole, err := Extent(d.Num, off, max(min(end, until), off))
			if err == nil && level > 0 {
				err = checkSource(&c.Sources[level-1], d.Num)
			}
			c.Put(d)
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

// Copy copies the first size bytes of a sparse upper, with the parts that show through its holes from other
// files, to the descriptor dst.
func (c *Content) Copy(dst int, size int64) (err error) {
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size && err == nil; off += int64(len(buf)) {
		if off, err = c.nextData(0, off, size); err != nil || off == size {
			break
		}
		buf = buf[:min(int64(cap(buf)), size-off)]
		if err = c.readLevel(0, buf, off); err == nil {
			err = WriteAll(dst, buf, off)
		}
	}
	return err
}
