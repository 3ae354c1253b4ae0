package layer

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A file of which much lies below is not copied when it is first written to, where its
// blocks cannot be shared: the top layer gets an empty one of its length, and what that
// has a hole for is shown from below. So a changed byte costs a block, however long the
// file is. Blocks come up whole, which is why a write that begins or ends in the middle of
// one copies that first, and a hole that is made is one of zeros that are written.
//
// What is below may be in layers, which nobody writes to, or in the tree, whose user may.
// A mixture of what he had and what he has would be nobody's file: after he has written to
// it, what was not copied cannot be read (ESTALE). That is why it takes [Options.Whole].

// defaultWhole is [Options.Whole] where it is not given. It is copied in a tenth of a
// second, about.
const defaultWhole = 64 << 20

// perLayer is by how much less is copied at most of a file of a layer, or of a frozen tree:
// nobody can write to what is not copied of it.
const perLayer = 64

// mostStrata is in how many places below its own the content of a file is at most. One that
// would be in more is copied.
const mostStrata = 8

// parts are what the content of a node is made of, where its own has holes. They never
// change: a node gets others.
type parts struct {
	// own is the file with its own content. A copy of it, as of a backup, may have zeros
	// in the place of holes, which would hide what is below.
	own     identity
	beneath []stratum // the uppermost first
	// writing is held by who writes to it.
	writing *sync.Mutex
}

// A stratum is content below that of a node, shown up to a byte.
type stratum struct {
	place place
	until int64
	// file is the one that has it, if it has holes too that show what is below that.
	file identity
	// What the file was when it was first shown so, to be told from what it is now.
	size   int64
	mtime  Time
	blocks int64 // of 512 bytes
}

// partsOf is nil for a node whose content is one file's.
func (f *FS) partsOf(n *node) *parts {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return n.parts
}

// cut shows nothing from a byte on any more. nil: nothing at all is shown from below.
func (p *parts) cut(at int64) *parts {
	if p == nil || p.shown() <= at {
		return p
	}
	if at == 0 {
		return nil
	}
	next := &parts{own: p.own, writing: p.writing}
	for _, s := range p.beneath {
		s.until = min(s.until, at)
		next.beneath = append(next.beneath, s)
	}
	return next
}

// in is the same with another file that has the content above it.
func (p *parts) in(fd int) (*parts, error) {
	if p == nil {
		return nil, nil
	}
	st, err := kernel.Lstat(fd, "")
	return &parts{own: fileOf(&st), beneath: p.beneath, writing: new(sync.Mutex)}, err
}

// shown is where what is shown from below ends.
func (p *parts) shown() int64 { return p.beneath[0].until }

// fileOf tells a file with content from another, on whichever device that is by now.
func fileOf(st *kernel.Stat) identity {
	return identity{ino: st.Ino, born: At(st.BTime.Sec, st.BTime.Nsec)}
}

// takeOver gives the new content of a node, an empty file in the top layer, what it had up
// to a byte, and reserves what that takes. Holds the lock of the content for writing.
func (f *FS) takeOver(dst int, n *node, keep int64) (p *parts, reserved int64, err error) {
	d, err := f.source(n)
	if err != nil {
		return nil, 0, err
	}
	defer f.fds.put(d)
	st, err := kernel.Lstat(d.n, "")
	if err != nil {
		return nil, 0, err
	}
	most := f.whole
	if n.place != below || f.frozen {
		most /= perLayer
	}
	need := min(f.up(st.Blocks*512), f.up(st.Size))
	p = n.parts
	few := min(need, keep) <= most || !tellsHoles(dst)
	if err := f.copyTo(dst, d.n, need, !few); err == nil {
		p, err = p.cut(keep).in(dst)
		return p, need, err
	} else if few {
		return nil, 0, err
	}
	if p != nil && len(p.beneath) == mostStrata {
		reserved, err = f.copyAll(dst, n, p, min(n.size, keep))
		return nil, reserved, err
	}
	s := stratum{place: n.place, until: min(n.size, keep), size: st.Size, mtime: At(st.MTime.Sec, st.MTime.Nsec), blocks: st.Blocks}
	next := &parts{writing: new(sync.Mutex)}
	if p != nil {
		s.file = p.own
	}
	if err := unix.Ftruncate(dst, s.until); err != nil {
		return nil, 0, err
	}
	st, err = kernel.Lstat(dst, "")
	next.own = fileOf(&st)
	next.beneath = append(next.beneath, s)
	if p != nil {
		next.beneath = append(next.beneath, p.cut(keep).beneath...)
	}
	return next, 0, err
}

// tellsHoles reports whether a filesystem says at once, and rightly, where a file has holes. ZFS
// waits for the disk before it does, and 2.1 took data for a hole that was just being written
// (openzfs/zfs#15526). XFS may have been told to allocate more than is written, of which it tells as of data. Of others
// it is not known.
func tellsHoles(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch st.Type {
	case unix.XFS_SUPER_MAGIC:
		ahead, err := kernel.AllocatesAhead(fd)
		return err == nil && !ahead
	case unix.EXT4_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	case unix.TMPFS_MAGIC:
		return !hasHugePages(fd)
	}
	return false
}

// hasHugePages reports whether a tmpfs may take pages of 2 MiB, say, of which all is data when
// a byte is (huge= in tmpfs(5)), or is not known to take none.
func hasHugePages(fd int) bool {
	st, err := kernel.Lstat(fd, "")
	if err != nil {
		return true
	}
	mounts, _ := kernel.Mounts() // none: it is not known
	for _, m := range mounts {
		if m.Dev == st.Dev && m.Type == "tmpfs" {
			return strings.Contains(m.SuperOptions, "huge=")
		}
	}
	return true
}

// copyTo copies content as it lies, holes as holes, and reserves what it takes, of
// which it keeps nothing after an error. Clone: only by sharing its blocks.
func (f *FS) copyTo(dst, src int, need int64, clone bool) error {
	if !f.reserveSoon(need) {
		return unix.EDQUOT
	}
	// Both descriptors are others' too: a File has one of its own.
	copying := func(to, from *os.File) error { _, err := kernel.CopyFile(to, from); return err }
	if clone {
		copying = kernel.CloneFile
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

// copyAll copies what a node shows up to a byte, whichever parts it is made of, and reserves what that takes.
func (f *FS) copyAll(dst int, n *node, p *parts, size int64) (reserved int64, err error) {
	if reserved = f.up(size); !f.reserveSoon(reserved) {
		return 0, unix.EDQUOT
	}
	if err := f.copyParts(dst, n, p, size); err != nil {
		f.reserve(-reserved)
		return 0, err
	}
	return reserved, nil
}

func (f *FS) copyParts(dst int, n *node, p *parts, size int64) (err error) {
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size && err == nil; off += int64(len(buf)) {
		if off, err = f.nextData(n, p, 0, off, size); err != nil || off == size {
			break
		}
		buf = buf[:min(int64(cap(buf)), size-off)]
		if err = f.readPart(n, p, 0, buf, off); err == nil {
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

// fallBack has a node be what is below its own content, which is not there. Holds mu.
func (n *node) fallBack() {
	p := n.parts
	s := p.beneath[0]
	n.place, n.size, n.ahead, n.parts = s.place, s.until, false, nil
	n.takes(s.blocks)
	if len(p.beneath) > 1 {
		n.parts = &parts{own: s.file, beneath: p.beneath[1:], writing: p.writing}
	}
}

// recallParts takes over what the log tells, and says whether it makes sense.
func (f *FS) recallParts(id uint64, p *parts) bool {
	n := f.nodes[id]
	if n == nil || !n.regular() || len(p.beneath) == 0 || len(p.beneath) > mostStrata {
		return false
	}
	above := n.place
	for i := range p.beneath {
		s := &p.beneath[i]
		if s.place >= above || s.place == below && n.from == nil || s.place < below {
			return false
		}
		above = s.place
	}
	n.parts = p
	return true
}
