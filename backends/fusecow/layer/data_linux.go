package layer

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// source answers with a descriptor to read the content of a node by, which has
// some. Holds its lock.
func (f *FS) source(n *node) (*fd, error) {
	var file identity
	if p := f.partsOf(n); p != nil {
		file = p.own
	}
	return f.sourceAt(n, n.place, file)
}

// sourceAt is source for content of the node at any place. Where it must be a certain
// file, and is another, it is not opened (EIO).
func (f *FS) sourceAt(n *node, at place, file identity) (*fd, error) {
	return f.fds.get(fdKey{place: at, id: n.id}, func() (int, error) {
		if at == below {
			return f.openBelow(n.from, unix.O_RDONLY)
		}
		flags := unix.O_RDONLY
		f.mu.RLock()
		d, top := f.layers[at], f.top()
		f.mu.RUnlock()
		if at == top && !f.readOnly {
			flags = unix.O_RDWR
		}
		num, err := d.open(n.id, flags, false)
		if err == nil && file.ino != 0 {
			st, err := kernel.Lstat(num, "")
			if err == nil && fileOf(&st) != file {
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

// errParts: no one file has the whole content and nothing else.
var errParts = errors.New("its content is not that of a file")

// read fills buf from an offset, as far as the file goes.
func (f *FS) read(n *node, buf []byte, off int64) (int, error) {
	n.lock().RLock()
	defer n.lock().RUnlock()
	f.mu.RLock()
	size, at, parts := n.size, n.place, n.parts
	f.mu.RUnlock()
	if off >= size {
		return 0, nil
	}
	buf = buf[:min(int64(len(buf)), size-off)]
	switch {
	case at == nowhere:
		clear(buf)
		return len(buf), nil
	case parts != nil:
		if err := f.readPart(n, parts, 0, buf, off); err != nil {
			return 0, err
		}
		return len(buf), nil
	}
	d, err := f.source(n)
	if err != nil {
		return 0, err
	}
	defer f.fds.put(d)
	return readAll(d.n, buf, off)
}

// own calls do with a descriptor of the content of a node in the top layer,
// where it is brought first, up to keep bytes of it. On a disk that is full it does so again when
// what was deleted has gone: after ENOSPC or EDQUOT do must leave nothing reserved, and all that
// it takes from outside as it was.
func (f *FS) own(n *node, keep int64, do func(fd int) error) (err error) {
	if f.readOnly {
		return unix.EROFS
	}
	f.afterDeleted(func() bool {
		err = f.ownNow(n, keep, do)
		return !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT)
	})
	return err
}

// ownNow is own, once.
func (f *FS) ownNow(n *node, keep int64, do func(fd int) error) error {
	f.freezing.RLock()
	defer f.freezing.RUnlock()
	f.mu.RLock()
	top := f.top()
	f.mu.RUnlock()
	n.lock().RLock()
	if was := n.place; was != top {
		n.lock().RUnlock()
		if err := f.bring(n, top, keep); err != nil {
			return err
		}
		if was != nowhere { // or a kill within a second would bring back what it was before
			defer func() { _ = f.commit(false) }() // what cannot be written stays unheard of
		}
		n.lock().RLock()
	}
	defer n.lock().RUnlock()
	d, err := f.source(n)
	if err != nil {
		return err
	}
	defer f.fds.put(d)
	return do(d.n)
}

// bring has the top layer take the content of a node, as [FS.takeOver] does it.
func (f *FS) bring(n *node, top place, keep int64) (err error) {
	n.lock().Lock()
	defer n.lock().Unlock()
	if n.place == top {
		return nil
	}
	f.mu.RLock()
	d, size := f.layers[top], n.size
	f.mu.RUnlock()
	num, err := f.makeContent(d, n.id)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			unix.Close(num)
			// What stays of it is put aside by the next try.
			_ = d.remove(n.id)
		}
	}()
	reserved := int64(0)
	defer func() {
		if err != nil {
			f.reserve(-reserved)
		}
	}()
	var was *Original
	if n.place == below && !f.raising {
		was = f.original(n, d)
		defer func() {
			if err != nil {
				d.dropOriginal(was)
			}
		}()
	}
	var made *parts
	if n.place != nowhere && keep > 0 {
		if made, reserved, err = f.takeOver(num, n, keep); err != nil {
			return err
		}
	}
	if size = min(size, keep); size > 0 || n.place != nowhere { // a file below may have grown since it was looked at
		if err := unix.Ftruncate(num, size); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.change(n); err != nil {
		return err
	}
	f.noteOriginal(was)
	f.fds.drop(fdKey{place: n.place, id: n.id})
	n.place, n.size, n.held, n.ahead, n.frame, n.parts = top, size, 0, false, 0, made
	f.recount(n, num, reserved)
	f.fds.add(fdKey{place: top, id: n.id}, num)
	return nil
}

// makeContent makes the content of a node, empty. What is there under its name, though no
// node has it, is put aside, unless the log had only not heard yet that it went.
func (f *FS) makeContent(d *dir, id uint64) (int, error) {
	num, err := d.open(id, unix.O_RDWR|unix.O_EXCL, true)
	if err != unix.EEXIST {
		return num, err
	}
	if err := f.commit(false); err != nil {
		return -1, err
	}
	if err := d.aside(id); err != nil {
		return -1, err
	}
	return d.open(id, unix.O_RDWR|unix.O_EXCL, true)
}

func dupFile(fd int) (*os.File, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(dup), "content"), err
}

const everything = 1<<63 - 1

// write puts data at an offset.
func (f *FS) write(n *node, data []byte, off int64, lose Privileges) (done int, err error) {
	err = f.own(n, everything, func(fd int) error {
		if p := f.partsOf(n); p != nil {
			p.writing.Lock()
			defer p.writing.Unlock()
			if err := f.fill(n, p, fd, off, off+int64(len(data))); err != nil {
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
					break // the caller learns of the rest when it asks again
				}
				f.reserve(-reserved)
				return err
			}
			done += max(k, 0)
		}
		return f.wrote(n, fd, off+int64(done), reserved, lose)
	})
	return done, err
}

// wrote keeps what is known of a file in step with its content, which now goes
// as far as end at least, and count what it takes in the place of what was reserved.
func (f *FS) wrote(n *node, fd int, end, reserved int64, lose Privileges) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n.size = max(n.size, end)
	f.recount(n, fd, reserved)
	if err := f.change(n); err != nil {
		return err
	}
	n.mtime = now()
	n.ctime = n.mtime
	n.lose(lose)
	return nil
}

// Privileges are what a file must not have any more when it was written to.
type Privileges int

// What a write takes away: nothing, as that of a mapped page; file capabilities; or
// these and the set-id bits.
const (
	LoseNothing Privileges = iota
	LoseCapability
	LoseSetID
)

// lose takes them from a changed file.
func (n *node) lose(p Privileges) {
	if p == LoseNothing {
		return
	}
	n.delXattr("security.capability")
	if p != LoseSetID || n.isDir() {
		return
	}
	n.mode &^= unix.S_ISUID
	if n.mode&unix.S_IXGRP != 0 {
		n.mode &^= unix.S_ISGID
	}
}

// truncate cuts or lengthens a file. Nothing is copied that is cut off, and a
// file with no content needs none.
func (f *FS) truncate(n *node, size int64) error {
	n.lock().RLock()
	f.mu.RLock()
	bare := n.place == nowhere
	f.mu.RUnlock()
	n.lock().RUnlock()
	if bare {
		return f.resize(n, size)
	}
	cut := false
	err := f.own(n, size, func(fd int) error {
		if err := unix.Ftruncate(fd, size); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		n.size, n.ahead = size, n.ahead && size >= n.size // a longer one keeps what was allocated
		f.recount(n, fd, 0)
		p := n.parts.cut(size)
		if cut = p != n.parts; cut {
			n.parts, n.frame = p, 0 // or fdatasync(2) would not wait for the log to tell of it
		}
		return f.changeAnyway(n) // or who freezes just now would have the old length and the new content
	})
	if err == nil && cut { // or a crash would show again what was cut off, were it longer by then
		err = f.commit(false)
	}
	return err
}

// resize sets the size of a file that has no content, where it has none still.
func (f *FS) resize(n *node, size int64) error {
	n.lock().Lock()
	if n.place == nowhere {
		f.mu.Lock()
		err := f.change(n)
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

// fallocate is fallocate(2).
func (f *FS) fallocate(n *node, mode uint32, off, size int64, lose Privileges) error {
	return f.own(n, everything, func(fd int) error {
		off, size := off, size // it may be done again
		if p := f.partsOf(n); p != nil {
			p.writing.Lock()
			defer p.writing.Unlock()
			above := f.passParts
			if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0 {
				above = f.clearParts
			}
			end := off + size
			var err error
			if off, err = above(n, p, fd, off, end); err != nil {
				return err
			}
			if size = end - off; size == 0 {
				return f.wrote(n, fd, 0, 0, lose)
			}
		}
		reserved := int64(0)
		if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_COLLAPSE_RANGE|unix.FALLOC_FL_INSERT_RANGE) == 0 {
			if reserved = f.atMost(n, off, size); !f.reserveSoon(reserved) {
				if reserved = f.holes(n, fd, f.down(off), f.up(off+size)); !f.reserve(reserved) {
					return unix.EDQUOT
				}
			}
		}
		err := unix.Fallocate(fd, mode, off, size)
		f.mu.Lock()
		n.ahead = n.ahead || mode&unix.FALLOC_FL_KEEP_SIZE != 0 && mode&unix.FALLOC_FL_PUNCH_HOLE == 0
		f.mu.Unlock()
		st, serr := kernel.Lstat(fd, "")
		if err == nil {
			err = serr
		}
		if err != nil { // a part may be there, of which what is beyond the end goes
			f.mu.Lock()
			defer f.mu.Unlock()
			if serr == nil && st.Size > n.size {
				_ = unix.Ftruncate(fd, n.size)
			}
			f.recount(n, fd, reserved)
			return err
		}
		return f.wrote(n, fd, st.Size, reserved, lose)
	})
}

// seek is lseek(2) with SEEK_DATA or SEEK_HOLE.
func (f *FS) seek(n *node, off int64, whence int) (int64, error) {
	n.lock().RLock()
	defer n.lock().RUnlock()
	f.mu.RLock()
	size, at, parts := n.size, n.place, n.parts
	f.mu.RUnlock()
	if off >= size || at == nowhere && whence == unix.SEEK_DATA {
		return 0, unix.ENXIO
	}
	switch {
	case at == nowhere:
		return off, nil
	case parts != nil && whence == unix.SEEK_HOLE:
		return f.nextHole(n, parts, off, size)
	case parts != nil:
		next, err := f.nextData(n, parts, 0, off, size)
		if err == nil && next == size {
			err = unix.ENXIO
		}
		return next, err
	}
	d, err := f.source(n)
	if err != nil {
		return 0, err
	}
	defer f.fds.put(d)
	return unix.Seek(d.n, off, whence)
}

// fsync puts the content of a node, and all names and attributes, on stable
// storage; with data, no more than it takes to read that content again, as fdatasync(2).
func (f *FS) fsync(n *node, data bool) error {
	f.freezing.RLock()
	defer f.freezing.RUnlock()
	if !n.regular() {
		return f.commit(true)
	}
	if data && f.isFirm(n) {
		return f.syncContent(n, unix.Fdatasync)
	}
	// At once, because the filesystem below makes one transaction of both.
	var log error
	var logging sync.WaitGroup
	logging.Go(func() { log = f.commit(true) })
	err := f.syncContent(n, unix.Fsync)
	logging.Wait()
	return errors.Join(err, log)
}

func (f *FS) syncContent(n *node, sync func(fd int) error) error {
	n.lock().RLock()
	defer n.lock().RUnlock()
	if n.place < 0 {
		return nil
	}
	d, err := f.source(n)
	if err != nil {
		return err
	}
	defer f.fds.put(d)
	return sync(d.n)
}
