package layer

import (
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"golang.org/x/sys/unix"
)

// maxCopy bounds the bytes of one [FS.Copy], which copies only so many: [FS.Freeze] waits for a running copy.
const maxCopy = 64 << 20

// Copy does copy_file_range(2) from the inode from, at off, to the inode to, at offset at. It shares blocks
// where the underlying filesystem can. It may copy less than size; 0 means the end of the source. EOPNOTSUPP
// and EXDEV: the caller should read and write instead. Others: EDQUOT, ESTALE, and those of files.
func (f *FS) Copy(from uint64, off int64, to uint64, at, size int64, lose Privileges) (int64, error) {
	src, err := f.inodeByID(from)
	if err != nil {
		return 0, err
	}
	dst, err := f.inodeByID(to)
	if err != nil {
		return 0, err
	}
	d, left, err := f.singleFile(src, off)
	if err != nil || left <= 0 {
		return 0, f.notifyStale(src, err)
	}
	defer f.fds.Put(d)
	done, err := f.copyFrom(d.Num, off, dst, at, min(size, left, maxCopy), lose)
	return done, f.notifyStale(dst, err)
}

// singleFile returns a descriptor of n's content, which the caller releases, and how many bytes follow off;
// nil and 0 at its end. EOPNOTSUPP: the content is in several files. A copy may miss concurrent changes.
func (f *FS) singleFile(n *inode, off int64) (*lower.FD, int64, error) {
	n.lock().RLock()
	defer n.lock().RUnlock()
	f.mu.RLock()
	size, at, parts := n.size, n.layer, n.sparse
	f.mu.RUnlock()
	if off >= size {
		return nil, 0, nil
	}
	if at == logfile.NoContent || parts != nil {
		return nil, 0, unix.EOPNOTSUPP
	}
	d, err := f.openContent(n)
	return d, size - off, err
}

// copyFrom copies up to size bytes from offset off of the descriptor src to n at offset at, and returns how
// many it copied. EOPNOTSUPP means that n is a sparse upper, or that src has no byte at off.
func (f *FS) copyFrom(src int, off int64, n *inode, at, size int64, lose Privileges) (done int64, err error) {
	err = f.withUpper(n, wholeFile, func(fd int) error {
		if f.sparseOf(n) != nil {
			return unix.EOPNOTSUPP
		}
		fits, reserved := f.reserveWrite(n, fd, at, size)
		if fits == 0 {
			return unix.EDQUOT
		}
		from, to := off, at
		k, err := unix.CopyFileRange(src, &from, fd, &to, int(fits), 0)
		if err == nil && k == 0 { // it was truncated meanwhile, or is a file that its filesystem generates
			err = unix.EOPNOTSUPP
		}
		if err != nil {
			f.reserve(-reserved)
			return err
		}
		done = int64(k)
		return f.noteWrite(n, fd, at+done, reserved, lose)
	})
	return done, err
}
