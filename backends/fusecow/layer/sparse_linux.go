package layer

import (
	"sync"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/backends/fusecow/layer/sparse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// The first write to a large file does not copy it, unless its blocks can be shared. Instead the top layer gets
// a sparse upper: an empty file of the same size, whose holes show the content of a lower extent source. A
// changed byte then costs one block, whatever the size of the file. Whole blocks are copied up, so a write that
// begins or ends inside a block copies the rest of that block first, and punching a hole writes zeros.
//
// Sources may be in frozen layers, which never change, or in the lower, which its user may change. A mixture of
// old and new content would be a file that never existed, so once somebody writes to the lower file, reading
// what was not copied up fails with ESTALE. This is why [Options.CopyUpLimit] exists.

// defaultCopyUpLimit is how many bytes of a lower file the first write copies if Options.CopyUpLimit is 0: as
// many as take about a tenth of a second.
const defaultCopyUpLimit = 64 << 20

// frozenDivisor is how many times smaller the copy-up limit (bytes that a file's first write copies) is for a
// file in a frozen layer or lower. Such a file cannot change, so the rest may be read from it later.
const frozenDivisor = 64

// maxSources is how many files may show through one sparse upper. A file that would need more is copied.
const maxSources = 8

// sparseOf returns the list of files that show through holes in the content of n, or nil if there is none.
func (f *FS) sparseOf(n *inode) *sparse.Upper {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return n.sparse
}

// fillCopiedUp gives dst, a new file in the top layer, the first limit bytes of n's content: as a clone, as a
// copy if that is within the copy-up limit, or else as a sparse upper, which it returns. It also returns the
// bytes it reserved in the quota. The caller holds the content lock for writing.
func (f *FS) fillCopiedUp(dst int, n *inode, limit int64) (p *sparse.Upper, reserved int64, err error) {
	d, err := f.openContent(n)
	if err != nil {
		return nil, 0, err
	}
	defer f.fds.Put(d)
	st, err := vfs.Lstat(d.Num, "")
	if err != nil {
		return nil, 0, err
	}
	most := f.copyUpLimit
	if n.layer != logfile.InLower || f.frozen {
		most /= frozenDivisor
	}
	need := min(f.alignUp(st.Blocks*512), f.alignUp(st.Size))
	p = n.sparse
	few := min(need, limit) <= most || !sparse.ReportsHoles(dst)
	if err := f.copyTo(dst, d.Num, need, !few); err == nil {
		p, err = p.Cut(limit).In(dst)
		return p, need, err
	} else if few {
		return nil, 0, err
	}
	if p != nil && len(p.Sources) == maxSources {
		reserved, err = f.copySparseReserving(dst, n, p, min(n.size, limit))
		return nil, reserved, err
	}
	s := logfile.Source{
		Layer: n.layer, Until: min(n.size, limit),
		Size: st.Size, Mtime: logfile.At(st.MTime.Sec, st.MTime.Nsec), Blocks: st.Blocks,
	}
	next := &sparse.Upper{WriteMu: new(sync.Mutex)}
	if p != nil {
		s.File = p.Own
	}
	if err := unix.Ftruncate(dst, s.Until); err != nil {
		return nil, 0, err
	}
	st, err = vfs.Lstat(dst, "")
	next.Own = logfile.FileIdentity(&st)
	next.Sources = append(next.Sources, s)
	if p != nil {
		next.Sources = append(next.Sources, p.Cut(limit).Sources...)
	}
	return next, 0, err
}

// copyTo copies the file src with its holes to dst, and reserves need bytes of the quota for it. With clone
// it only shares blocks. After an error nothing stays reserved.
func (f *FS) copyTo(dst, src int, need int64, clone bool) error {
	if !f.reserveWait(need) {
		return unix.EDQUOT
	}
	err := sparse.CopyFile(dst, src, clone)
	if err != nil {
		f.reserve(-need)
	}
	return err
}

// copySparseReserving copies the first size bytes of the content of n, a sparse upper p, to dst, and returns
// the bytes that it reserved in the quota.
func (f *FS) copySparseReserving(dst int, n *inode, p *sparse.Upper, size int64) (reserved int64, err error) {
	if reserved = f.alignUp(size); !f.reserveWait(reserved) {
		return 0, unix.EDQUOT
	}
	if err := f.sparseContent(n, p).Copy(dst, size); err != nil {
		f.reserve(-reserved)
		return 0, err
	}
	return reserved, nil
}

// revertToSource makes the sparse upper n, whose file is missing, show its first source. The caller holds mu.
func (n *inode) revertToSource() {
	p := n.sparse
	s := p.Sources[0]
	n.layer, n.size, n.preallocated, n.sparse = s.Layer, s.Until, false, nil
	n.setBlocks(s.Blocks)
	if len(p.Sources) > 1 {
		n.sparse = &sparse.Upper{Sparse: logfile.Sparse{Own: s.File, Sources: p.Sources[1:]}, WriteMu: p.WriteMu}
	}
}

// replaySparse makes the inode id the sparse upper p that a log records; false means an invalid record.
func (f *FS) replaySparse(id uint64, p logfile.Sparse) bool {
	n := f.inodes[id]
	if n == nil || !n.regular() || len(p.Sources) == 0 || len(p.Sources) > maxSources {
		return false
	}
	above := n.layer
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.Layer >= above || s.Layer == logfile.InLower && n.lower == nil || s.Layer < logfile.InLower {
			return false
		}
		above = s.Layer
	}
	n.sparse = &sparse.Upper{Sparse: p, WriteMu: new(sync.Mutex)}
	return true
}

// sparseContent returns a reader of the content of n, a sparse upper p, and of the sources that show through.
func (f *FS) sparseContent(n *inode, p *sparse.Upper) *sparse.Content {
	return &sparse.Content{Upper: p, Put: f.fds.Put, Open: func(s *logfile.Source) (*lower.FD, error) {
		if s == nil {
			return f.openContent(n)
		}
		return f.openContentIn(n, s.Layer, s.File)
	}}
}
