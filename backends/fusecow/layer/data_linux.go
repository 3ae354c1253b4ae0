package layer

import (
	"errors"
	"sync"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/backends/fusecow/layer/sparse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// openContent returns a descriptor for reading the content file of n, which must have one; the caller must
// release it with [lower.FDCache.Put]. The caller holds the content lock.
func (f *FS) openContent(n *inode) (*lower.FD, error) {
	var file logfile.Identity
	if p := f.sparseOf(n); p != nil {
		file = p.Own
	}
	return f.openContentIn(n, n.layer, file)
}

// openContentIn opens the content of n in the layer with the index at, or in the lower, as openContent does.
// If file is not zero and identifies another file than the one found, it returns EIO.
func (f *FS) openContentIn(n *inode, at logfile.Index, file logfile.Identity) (*lower.FD, error) {
	return f.fds.Get(lower.Key{Layer: at, ID: n.id}, func() (int, error) {
		if at == logfile.InLower {
			return f.lower.Open(n.lower, unix.O_RDONLY)
		}
		flags := unix.O_RDONLY
		f.mu.RLock()
		d, top := f.layers[at], f.top()
		f.mu.RUnlock()
		if at == top && !f.readOnly {
			flags = unix.O_RDWR
		}
		num, err := d.OpenContent(n.id, flags, false)
		if err == nil && file.Ino != 0 {
			st, err := vfs.Lstat(num, "")
			if err == nil && logfile.FileIdentity(&st) != file {
				err = unix.EIO
			}
			if err != nil {
				unix.Close(num)
				return -1, err
			}
		}
		return num, err
	})
}

// errNotOneFile means that a file's content is spread over several files, so that no descriptor has it all.
var errNotOneFile = errors.New("the content is not a single file")

// Read fills buf with the content of the inode id from off, up to the end of the file.
func (f *FS) Read(id uint64, buf []byte, off int64) (int, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return 0, err
	}
	n.lock().RLock()
	defer n.lock().RUnlock()
	f.mu.RLock()
	size, at, parts := n.size, n.layer, n.sparse
	f.mu.RUnlock()
	if off >= size {
		return 0, nil
	}
	buf = buf[:min(int64(len(buf)), size-off)]
	switch {
	case at == logfile.NoContent:
		clear(buf)
		return len(buf), nil
	case parts != nil:
		if err := f.sparseContent(n, parts).Read(buf, off); err != nil {
			return 0, f.notifyStale(n, err)
		}
		return len(buf), nil
	}
	d, err := f.openContent(n)
	if err != nil {
		return 0, f.notifyStale(n, err)
	}
	defer f.fds.Put(d)
	done, err := sparse.ReadAll(d.Num, buf, off)
	return done, f.notifyStale(n, err)
}

// withUpper calls do with a descriptor of n's content in the top layer, after copying up the first limit
// bytes. If do fails with ENOSPC or EDQUOT, withUpper calls it again once deleted content has freed space; so
// a failing do must leave no space reserved and captured variables unchanged.
func (f *FS) withUpper(n *inode, limit int64, do func(fd int) error) (err error) {
	if f.readOnly {
		return unix.EROFS
	}
	f.retryAfterDelete(func() bool {
		err = f.withUpperOnce(n, limit, do)
		return !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT)
	})
	return err
}

// withUpperOnce calls do with a descriptor of n's content in the top layer, after copying up the first limit bytes.
func (f *FS) withUpperOnce(n *inode, limit int64, do func(fd int) error) error {
	f.freezing.RLock()
	defer f.freezing.RUnlock()
	f.mu.RLock()
	top := f.top()
	f.mu.RUnlock()
	n.lock().RLock()
	if was := n.layer; was != top {
		n.lock().RUnlock()
		if err := f.copyUp(n, top, limit); err != nil {
			return err
		}
		if was != logfile.NoContent { // without a commit, a kill within a second would undo the whole write
			defer func() { _ = f.Commit(false) }() // after an error the record waits for the next commit
		}
		n.lock().RLock()
	}
	defer n.lock().RUnlock()
	d, err := f.openContent(n)
	if err != nil {
		return err
	}
	defer f.fds.Put(d)
	return do(d.Num)
}

// copyUp copies up to limit bytes of the content of the file n to the layer top, which takes all changes,
// before a program changes n. [FS.fillCopiedUp] says when it shares blocks instead of copying.
func (f *FS) copyUp(n *inode, top logfile.Index, limit int64) (err error) {
	n.lock().Lock()
	defer n.lock().Unlock()
	if n.layer == top {
		return nil
	}
	f.mu.RLock()
	d, size, shown := f.layers[top], n.size, n.shown()
	f.mu.RUnlock()
	num, err := f.createContent(d, n.id)
	if err != nil {
		return err
	}
	var was *logfile.Original
	reserved := int64(0)
	defer func() {
		if err != nil {
			d.RemoveOriginal(was)
			f.reserve(-reserved)
			unix.Close(num)
			// The next attempt sets a leftover aside.
			_ = d.RemoveContent(n.id)
		}
	}()
	if n.layer == logfile.InLower && !f.detaching {
		was = f.saveOriginal(n, d, shown)
	}
	var made *sparse.Upper
	if n.layer != logfile.NoContent && limit > 0 {
		if made, reserved, err = f.fillCopiedUp(num, n, limit); err != nil {
			return err
		}
	}
	if size = min(size, limit); size > 0 || n.layer != logfile.NoContent { // a lower file may have grown after its size was cached
		if err := unix.Ftruncate(num, size); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.makeDirty(n); err != nil {
		return err
	}
	f.addOriginal(was)
	f.fds.Drop(lower.Key{Layer: n.layer, ID: n.id})
	n.layer, n.size, n.charged, n.preallocated, n.frame, n.sparse = top, size, 0, false, 0, made
	f.recharge(n, num, reserved)
	f.fds.Add(lower.Key{Layer: top, ID: n.id}, num)
	return nil
}

// createContent creates the empty content file of inode id in the layer d, and returns its descriptor. A file
// of that name that belongs to no inode is moved to found/, unless the next commit was to delete it.
func (f *FS) createContent(d *stackedLayer, id uint64) (int, error) {
	num, err := d.OpenContent(id, unix.O_RDWR|unix.O_EXCL, true)
	if err != unix.EEXIST {
		return num, err
	}
	if err := f.Commit(false); err != nil {
		return -1, err
	}
	if err := d.SetAside(id); err != nil {
		return -1, err
	}
	return d.OpenContent(id, unix.O_RDWR|unix.O_EXCL, true)
}

const wholeFile = 1<<63 - 1

// Write writes data at off to the inode id, which loses the privileges lose. It may write less than all.
func (f *FS) Write(id uint64, data []byte, off int64, lose Privileges) (done int, err error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return 0, err
	}
	err = f.withUpper(n, wholeFile, func(fd int) error {
		if p := f.sparseOf(n); p != nil {
			p.WriteMu.Lock()
			defer p.WriteMu.Unlock()
			if err := f.copyUpEdges(n, p, fd, off, off+int64(len(data))); err != nil {
				return err
			}
		}
		fits, reserved := f.reserveWrite(n, fd, off, int64(len(data)))
		if fits == 0 && len(data) > 0 {
			return unix.EDQUOT
		}
		data = data[:fits]
		for done < len(data) {
			k, err := unix.Pwrite(fd, data[done:], off+int64(done))
			if err != nil && err != unix.EINTR {
				if done > 0 {
					break // the caller learns of the error when it writes the rest
				}
				f.reserve(-reserved)
				return err
			}
			done += max(k, 0)
		}
		return f.noteWrite(n, fd, off+int64(done), reserved, lose)
	})
	return done, f.notifyStale(n, err)
}

// noteWrite updates size, times and quota charge of n after a write that ended at offset end. The space that
// the file fd really takes replaces the reserved bytes.
func (f *FS) noteWrite(n *inode, fd int, end, reserved int64, lose Privileges) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n.size = max(n.size, end)
	f.recharge(n, fd, reserved)
	if err := f.makeDirty(n); err != nil {
		return err
	}
	n.mtime = logfile.Now()
	n.ctime = n.mtime
	n.strip(lose)
	return nil
}

// Privileges are the set-id bits and capabilities that a file loses when a user writes to it.
type Privileges int

// What a write takes from a file: nothing (the kernel writes back a mapped page), its file capabilities, or
// capabilities and set-id bits.
const (
	LoseNothing Privileges = iota
	LoseCapability
	LoseSetID
)

// strip removes the privileges p, such as set-id bits, from a dirty inode after a write.
func (n *inode) strip(p Privileges) {
	if p == LoseNothing {
		return
	}
	delete(n.xattrs, "security.capability")
	if p != LoseSetID || n.isDir() {
		return
	}
	n.mode &^= unix.S_ISUID
	if n.mode&unix.S_IXGRP != 0 {
		n.mode &^= unix.S_ISGID
	}
}

// truncate sets the size of the file n. It copies up no byte beyond that, and nothing if n has no content.
func (f *FS) truncate(n *inode, size int64) error {
	n.lock().RLock()
	bare := n.layer == logfile.NoContent
	n.lock().RUnlock()
	if bare {
		return f.resize(n, size)
	}
	cut := false
	err := f.withUpper(n, size, func(fd int) error {
		if err := unix.Ftruncate(fd, size); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		n.size, n.preallocated = size, n.preallocated && size >= n.size // when extended, it keeps its preallocation
		f.recharge(n, fd, 0)
		p := n.sparse.Cut(size)
		if cut = p != n.sparse; cut {
			n.sparse, n.frame = p, 0 // makes fdatasync(2) wait for a log with the new sources
		}
		return f.makeDirtyUnchecked(n) // before freezing is released: a snapshot must not have the old size with the new content
	})
	if err == nil && cut { // otherwise a crash would bring back the cut part, once the file is longer again
		err = f.Commit(false)
	}
	return err
}

// resize sets the size of n. A file without content only gets another size; any other is truncated.
func (f *FS) resize(n *inode, size int64) error {
	n.lock().Lock()
	if n.layer == logfile.NoContent {
		f.mu.Lock()
		err := f.makeDirty(n)
		if err == nil {
			n.size, n.frame = size, 0
		}
		f.mu.Unlock()
		n.lock().Unlock()
		return err
	}
	n.lock().Unlock()
	return f.truncate(n, size)
}

// Fallocate does fallocate(2) with mode for size bytes at off of the inode id, which loses privileges (lose).
func (f *FS) Fallocate(id uint64, mode uint32, off, size int64, lose Privileges) error {
	n, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	return f.withUpper(n, wholeFile, func(fd int) error {
		off, size := off, size // withUpper may call this function twice
		if p := f.sparseOf(n); p != nil {
			p.WriteMu.Lock()
			defer p.WriteMu.Unlock()
			above := f.skipShown
			if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0 {
				above = f.zeroShown
			}
			end := off + size
			var err error
			if off, err = above(n, p, fd, off, end); err != nil {
				return err
			}
			if size = end - off; size == 0 {
				return f.noteWrite(n, fd, 0, 0, lose)
			}
		}
		reserved := int64(0)
		if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_COLLAPSE_RANGE|unix.FALLOC_FL_INSERT_RANGE) == 0 {
			if reserved = f.maxAlloc(n, off, size); !f.reserveWait(reserved) {
				if reserved = f.holeBytes(n, fd, f.alignDown(off), f.alignUp(off+size)); !f.reserve(reserved) {
					return unix.EDQUOT
				}
			}
		}
		err := unix.Fallocate(fd, mode, off, size)
		f.mu.Lock()
		n.preallocated = n.preallocated || mode&unix.FALLOC_FL_KEEP_SIZE != 0 && mode&unix.FALLOC_FL_PUNCH_HOLE == 0
		f.mu.Unlock()
		st, serr := vfs.Lstat(fd, "")
		if err == nil {
			err = serr
		}
		if err != nil { // a part may be allocated; cut off what lies beyond the end
			f.mu.Lock()
			defer f.mu.Unlock()
			if serr == nil && st.Size > n.size {
				_ = unix.Ftruncate(fd, n.size)
			}
			f.recharge(n, fd, reserved)
			return err
		}
		return f.noteWrite(n, fd, st.Size, reserved, lose)
	})
}

// Seek returns the next offset from off on of the inode id with data or in a hole, as lseek(2) with whence.
func (f *FS) Seek(id uint64, off int64, whence int) (int64, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return 0, err
	}
	n.lock().RLock()
	defer n.lock().RUnlock()
	f.mu.RLock()
	size, at, parts := n.size, n.layer, n.sparse
	f.mu.RUnlock()
	if off >= size || at == logfile.NoContent && whence == unix.SEEK_DATA {
		return 0, unix.ENXIO
	}
	switch {
	case at == logfile.NoContent:
		return off, nil
	case parts != nil && whence == unix.SEEK_HOLE:
		return f.sparseContent(n, parts).NextHole(off, size)
	case parts != nil:
		next, err := f.sparseContent(n, parts).NextData(off, size)
		if err == nil && next == size {
			err = unix.ENXIO
		}
		return next, err
	}
	d, err := f.openContent(n)
	if err != nil {
		return 0, err
	}
	defer f.fds.Put(d)
	return unix.Seek(d.Num, off, whence)
}

// Fsync does fsync(2) of the inode id, with all metadata; with data set, only what fdatasync(2) requires.
func (f *FS) Fsync(id uint64, data bool) error {
	n, err := f.inodeByID(id)
	if err != nil || f.readOnly {
		return err
	}
	f.freezing.RLock()
	defer f.freezing.RUnlock()
	if !n.regular() {
		return f.Commit(true)
	}
	if data && f.isDurable(n) {
		return f.syncContent(n, unix.Fdatasync)
	}
	// Both run at once, because the underlying filesystem then needs only one transaction.
	var log error
	var logging sync.WaitGroup
	logging.Go(func() { log = f.Commit(true) })
	err = f.syncContent(n, unix.Fsync)
	logging.Wait()
	return errors.Join(err, log)
}

func (f *FS) syncContent(n *inode, sync func(fd int) error) error {
	n.lock().RLock()
	defer n.lock().RUnlock()
	if n.layer < 0 {
		return nil
	}
	d, err := f.openContent(n)
	if err != nil {
		return err
	}
	defer f.fds.Put(d)
	return sync(d.Num)
}
