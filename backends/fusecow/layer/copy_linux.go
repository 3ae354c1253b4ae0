package layer

import "golang.org/x/sys/unix"

// mostCopied bounds what one [FS.Copy] does: who freezes waits until it has ended.
const mostCopied = 64 << 20

// Copy is copy_file_range(2): it puts up to size bytes of a file into another one, or elsewhere into the
// same, without reading them: blocks are shared where the filesystem below can share them, and copied by the
// kernel where it cannot. It may do less than all; 0 is the end of the file. Errors: EOPNOTSUPP and EXDEV (no one
// file has the content, or files of two filesystems have), after which the caller reads and writes; EDQUOT,
// ESTALE, and those of files.
func (f *FS) Copy(from uint64, off int64, to uint64, at, size int64, lose Privileges) (int64, error) {
	src, err := f.node(from)
	if err != nil {
		return 0, err
	}
	dst, err := f.node(to)
	if err != nil {
		return 0, err
	}
	d, left, err := f.sole(src, off)
	if err != nil || left <= 0 {
		return 0, f.mayBeStale(src, err)
	}
	defer f.fds.put(d)
	done, err := f.copyFrom(d.n, off, dst, at, min(size, left, mostCopied), lose)
	return done, f.mayBeStale(dst, err)
}

// sole answers with a descriptor of the one file that has the content of a node, and how much of
// it follows off; EOPNOTSUPP: there is none. What is changed meanwhile is copied as it was or as it is.
func (f *FS) sole(n *node, off int64) (*fd, int64, error) {
	n.lock().RLock()
	defer n.lock().RUnlock()
	f.mu.RLock()
	size, at, parts := n.size, n.place, n.parts
	f.mu.RUnlock()
	if off >= size {
		return nil, 0, nil
	}
	if at == nowhere || parts != nil {
		return nil, 0, unix.EOPNOTSUPP
	}
	d, err := f.source(n)
	return d, size - off, err
}

// copyFrom puts size bytes of a file of the filesystem below into a node.
func (f *FS) copyFrom(src int, off int64, n *node, at, size int64, lose Privileges) (done int64, err error) {
	err = f.own(n, everything, func(fd int) error {
		if f.partsOf(n) != nil {
			return unix.EOPNOTSUPP
		}
		fits, reserved := f.reserveWrite(n, fd, at, size)
		if fits == 0 {
			return unix.EDQUOT
		}
		from, to := off, at
		k, err := unix.CopyFileRange(src, &from, fd, &to, int(fits), 0)
		if err == nil && k == 0 { // it was cut meanwhile, or its filesystem makes it up
			err = unix.EOPNOTSUPP
		}
		if err != nil {
			f.reserve(-reserved)
			return err
		}
		done = int64(k)
		return f.wrote(n, fd, at+done, reserved, lose)
	})
	return done, err
}
