package layer

import (
	"os"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/projquota"
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

// defaultCopyUpLimit takes about a tenth of a second to copy.
const defaultCopyUpLimit = 64 << 20

// frozenDivisor divides the copy-up limit for content in a frozen layer or a frozen lower, where sources cannot
// change.
const frozenDivisor = 64

// MaxSources bounds the extent sources of one file. A file that would need more is copied.
const MaxSources = 8

// A sparseUpper says which files show through the holes of an inode's content. It is never modified, only
// replaced.
type sparseUpper struct {
	logfile.Sparse
	// writeMu is held by writers of the content.
	writeMu *sync.Mutex
}

// sparseOf returns nil for an inode whose content is one file.
func (f *FS) sparseOf(n *inode) *sparseUpper {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return n.sparse
}

// cut limits all sources to offset at. It returns nil if nothing shows through any more.
func (p *sparseUpper) cut(at int64) *sparseUpper {
	if p == nil || p.shown() <= at {
		return p
	}
	if at == 0 {
		return nil
	}
	next := &sparseUpper{Sparse: logfile.Sparse{Own: p.Own}, writeMu: p.writeMu}
	for _, s := range p.Sources {
		s.Until = min(s.Until, at)
		next.Sources = append(next.Sources, s)
	}
	return next
}

// inFile returns p for a copy of its upper file.
func (p *sparseUpper) inFile(fd int) (*sparseUpper, error) {
	if p == nil {
		return nil, nil
	}
	st, err := vfs.Lstat(fd, "")
	return &sparseUpper{Sparse: logfile.Sparse{Own: logfile.FileIdentity(&st), Sources: p.Sources}, writeMu: new(sync.Mutex)}, err
}

// shown returns the offset up to which a source may show through.
func (p *sparseUpper) shown() int64 { return p.Sources[0].Until }

// fillCopiedUp gives dst, a new file in the top layer, the first limit bytes of n's content: as a clone, as a
// copy if that is within the limit, or else as a sparse upper. It returns the bytes it reserved. The caller
// holds the content lock for writing.
func (f *FS) fillCopiedUp(dst int, n *inode, limit int64) (p *sparseUpper, reserved int64, err error) {
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
	few := min(need, limit) <= most || !reportsHoles(dst)
	if err := f.copyTo(dst, d.Num, need, !few); err == nil {
		p, err = p.cut(limit).inFile(dst)
		return p, need, err
	} else if few {
		return nil, 0, err
	}
	if p != nil && len(p.Sources) == MaxSources {
		reserved, err = f.copySparseReserving(dst, n, p, min(n.size, limit))
		return nil, reserved, err
	}
	s := logfile.Source{Layer: n.layer, Until: min(n.size, limit), Size: st.Size, Mtime: logfile.At(st.MTime.Sec, st.MTime.Nsec), Blocks: st.Blocks}
	next := &sparseUpper{writeMu: new(sync.Mutex)}
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
		next.Sources = append(next.Sources, p.cut(limit).Sources...)
	}
	return next, 0, err
}

// reportsHoles reports whether the filesystem of fd reports the holes of a file immediately and correctly. ZFS
// waits for the disk, and ZFS 2.1 reported data that was being written as a hole (openzfs/zfs#15526). XFS may
// be configured to allocate more than is written, and reports that as data. Unknown filesystems count as wrong.
func reportsHoles(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch st.Type {
	case unix.XFS_SUPER_MAGIC:
		ahead, err := projquota.AllocatesAhead(fd)
		return err == nil && !ahead
	case unix.EXT4_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	case unix.TMPFS_MAGIC:
		return !hasHugePages(fd)
	}
	return false
}

// hasHugePages reports whether a tmpfs may use huge pages (huge= in tmpfs(5)), which are data as a whole once
// one byte is. It also returns true if it cannot find out.
func hasHugePages(fd int) bool {
	st, err := vfs.Lstat(fd, "")
	if err != nil {
		return true
	}
	mounts, _ := mount.List() // none if unknown
	for _, m := range mounts {
		if m.Dev == st.Dev && m.Type == "tmpfs" {
			return strings.Contains(m.SuperOptions, "huge=")
		}
	}
	return true
}

// copyTo copies content with its holes, and reserves need bytes for it. With clone it only shares blocks. After
// an error nothing stays reserved.
func (f *FS) copyTo(dst, src int, need int64, clone bool) error {
	if !f.reserveWait(need) {
		return unix.EDQUOT
	}
	// Other goroutines use both descriptors, so each File gets a duplicate.
	copying := func(to, from *os.File) error { _, err := vfs.CopyFile(to, from); return err }
	if clone {
		copying = vfs.CloneFile
	}
	to, err := dupFile(dst)
	if err == nil {
		defer to.Close()
		var from *os.File
		if from, err = dupFile(src); err == nil {
			defer from.Close()
			err = copying(to, from)
		}
	}
	if err != nil {
		f.reserve(-need)
	}
	return err
}

// copySparseReserving copies the first size bytes of what n shows, and returns the bytes it reserved.
func (f *FS) copySparseReserving(dst int, n *inode, p *sparseUpper, size int64) (reserved int64, err error) {
	if reserved = f.alignUp(size); !f.reserveWait(reserved) {
		return 0, unix.EDQUOT
	}
	if err := f.copySparse(dst, n, p, size); err != nil {
		f.reserve(-reserved)
		return 0, err
	}
	return reserved, nil
}

func (f *FS) copySparse(dst int, n *inode, p *sparseUpper, size int64) (err error) {
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size && err == nil; off += int64(len(buf)) {
		if off, err = f.nextData(n, p, 0, off, size); err != nil || off == size {
			break
		}
		buf = buf[:min(int64(cap(buf)), size-off)]
		if err = f.readLevel(n, p, 0, buf, off); err == nil {
			err = writeAll(dst, buf, off)
		}
	}
	return err
}

func writeAll(fd int, buf []byte, off int64) error {
	for len(buf) > 0 {
		k, err := unix.Pwrite(fd, buf, off)
		if err != nil && err != unix.EINTR {
			return err
		}
		k = max(k, 0)
		buf, off = buf[k:], off+int64(k)
	}
	return nil
}

// revertToSource drops the upper file of n, which is missing, so that n shows its first source. The caller
// holds mu.
func (n *inode) revertToSource() {
	p := n.sparse
	s := p.Sources[0]
	n.layer, n.size, n.preallocated, n.sparse = s.Layer, s.Until, false, nil
	n.setBlocks(s.Blocks)
	if len(p.Sources) > 1 {
		n.sparse = &sparseUpper{Sparse: logfile.Sparse{Own: s.File, Sources: p.Sources[1:]}, writeMu: p.writeMu}
	}
}

// replaySparse applies a record of sources, and reports whether it was valid.
func (f *FS) replaySparse(id uint64, p logfile.Sparse) bool {
	n := f.inodes[id]
	if n == nil || !n.regular() || len(p.Sources) == 0 || len(p.Sources) > MaxSources {
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
	n.sparse = &sparseUpper{Sparse: p, writeMu: new(sync.Mutex)}
	return true
}
