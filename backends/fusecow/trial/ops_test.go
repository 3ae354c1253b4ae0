//go:build linux

package trial_test

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// An op is an operation and its relative frequency.
type op struct {
	weight int
	what   string
	do     func(*model, *file) error
}

// ops returns all operations. The nested ones act on a chosen file; those on names choose their own.
func ops() []op {
	return []op{
		{16, "read", (*model).read},
		{16, "write", (*model).overwrite},
		{5, "append", (*model).append},
		{6, "read a mapping", (*model).readMap},
		{6, "write a mapping", (*model).writeMap},
		{1, "msync", (*model).msync},
		{2, "unmap", (*model).dropMap},
		{6, "truncate", (*model).truncate},
		{9, "fallocate", (*model).fallocate},
		{4, "seek", (*model).seek},
		{4, "copy", (*model).copy},
		{5, "open", (*model).reopen},
		{4, "close", (*model).drop},
		{1, "fsync", (*model).fsync},
		{4, "stat", (*model).stat},
		{3, "create", (*model).create},
		{1, "tmpfile", (*model).tmpfile},
		{3, "link", (*model).link},
		{4, "unlink", (*model).unlink},
		{5, "rename", (*model).rename},
		{1, "rename directories", (*model).renameDirs},
		{1, "list", (*model).list},
	}
}

// step does one operation.
func (m *model) step(all []op, total int) error {
	m.done++
	n := m.rnd.IntN(total)
	i := 0
	for ; n >= all[i].weight; i++ {
		n -= all[i].weight
	}
	var f *file
	if len(m.files) > 0 {
		f = m.files[m.rnd.IntN(len(m.files))]
	} else if err := m.create(nil); err != nil {
		return err
	} else if len(m.files) == 0 {
		return nil
	} else {
		f = m.files[0]
	}
	err := all[i].do(m, f)
	var d *difference
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &d):
		err = &difference{f, -1, err.Error()}
	}
	return fmt.Errorf("%s of file %d: %w", all[i].what, f.number, err)
}

// both does something on both sides, which must agree.
func both(do func(side int) error) error {
	var errs [2]error
	for side := range errs {
		for {
			if errs[side] = do(side); !errors.Is(errs[side], unix.EINTR) {
				break
			}
		}
	}
	var d *difference
	if errors.As(errors.Join(errs[:]...), &d) {
		return errors.Join(errs[:]...)
	}
	if !errors.Is(errs[tried], errs[plain]) {
		return &disagree{errs}
	}
	return errs[plain]
}

// A disagree means that the two sides returned different errors.
type disagree struct{ errs [2]error }

func (d *disagree) Error() string {
	return fmt.Sprintf("the mount answers %v, the plain disk %v", d.errs[tried], d.errs[plain])
}

// refused returns nil if both sides refused an operation with the same error.
func refused(err error) error {
	var d *disagree
	if errors.As(err, &d) {
		return err
	}
	return nil
}

// handle opens a file, or returns an open handle.
func (m *model) handle(f *file) (pair, error) {
	if len(f.open) > 0 && (f.names == 0 || len(f.open) == maxOpen || m.rnd.IntN(4) > 0) {
		return f.open[m.rnd.IntN(len(f.open))], nil
	}
	return m.openAt(f, 0)
}

// openAt opens a file by one of its names, or through a handle or mapping.
func (m *model) openAt(f *file, flags int) (pair, error) {
	fds := pair{-1, -1}
	var name string
	for _, s := range slots() {
		if m.names[s] == f && (name == "" || m.rnd.IntN(2) == 0) {
			name = s
		}
	}
	err := both(func(side int) (err error) {
		path := m.path(side, name)
		if name == "" {
			path = fmt.Sprintf("/proc/self/fd/%d", f.open[0][side])
		}
		fds[side], err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|flags, 0o644)
		return err
	})
	if err != nil {
		return fds, err
	}
	f.open = append(f.open, fds)
	m.note(f.number, 0, 0, "open %s with %#x", name, flags)
	return fds, nil
}

// size returns a number up to most; small ones are more frequent.
func (m *model) size(most int) int {
	if most <= 0 {
		return 0
	}
	switch m.rnd.IntN(4) {
	case 0:
		return m.rnd.IntN(min(most, 64)) + 1
	case 1:
		return min(most, (m.rnd.IntN(4)+1)<<12)
	case 2:
		return m.rnd.IntN(min(most, 48<<10)) + 1
	}
	return m.rnd.IntN(min(most, 6000)) + 1
}

// place returns an offset in a file or slightly beyond its end, often at a page boundary.
func (m *model) place(f *file) int {
	at := m.rnd.IntN(min(len(f.data)+9000, maxSize-1))
	switch m.rnd.IntN(5) {
	case 0:
		return at &^ 4095
	case 1:
		return min(len(f.data), maxSize-1)
	}
	return at
}

func (m *model) read(f *file) error {
	fds, err := m.handle(f)
	if err != nil {
		return err
	}
	at := m.place(f)
	buf := make([]byte, m.size(maxSize))
	want := f.data[min(at, len(f.data)):min(at+len(buf), len(f.data))]
	m.note(f.number, at, at+len(buf), "read")
	return both(func(side int) error {
		n, err := unix.Pread(fds[side], buf, int64(at))
		if err != nil {
			return err
		}
		return m.differ(f, at, buf[:n], want, "read")
	})
}

func (m *model) overwrite(f *file) error { return m.put(f, m.place(f)) }

func (m *model) append(f *file) error { return m.put(f, len(f.data)) }

func (m *model) put(f *file, at int) error {
	fds, err := m.handle(f)
	if err != nil {
		return err
	}
	data := make([]byte, m.size(maxSize-at))
	if m.rnd.IntN(12) > 0 {
		m.fill(data)
	}
	f.touch(at > len(f.data))
	m.note(f.number, min(at, len(f.data)), at+len(data), "write from %d on", at)
	err = both(func(side int) error {
		n, err := unix.Pwrite(fds[side], data, int64(at))
		if err == nil && n != len(data) {
			err = fmt.Errorf("wrote %d of %d bytes", n, len(data))
		}
		return err
	})
	if err == nil && len(data) > 0 {
		f.resize(max(len(f.data), at+len(data)))
		copy(f.data[at:], data)
	}
	return err
}

// resize sets the expected size of a file.
func (f *file) resize(size int) {
	if size <= len(f.data) {
		f.data = f.data[:size]
		return
	}
	f.data = append(f.data, make([]byte, size-len(f.data))...)
}

func (m *model) truncate(f *file) error {
	fds, err := m.handle(f)
	if err != nil {
		return err
	}
	size := m.place(f)
	if m.rnd.IntN(8) == 0 {
		size = 0
	}
	f.touch(true)
	m.note(f.number, min(size, len(f.data)), max(size, len(f.data)), "truncate to %d from %d", size, len(f.data))
	if err := both(func(side int) error { return unix.Ftruncate(fds[side], int64(size)) }); err != nil {
		return err
	}
	f.resize(size)
	return nil
}

func (m *model) fallocate(f *file) error {
	fds, err := m.handle(f)
	if err != nil {
		return err
	}
	const keep, punch, clean = unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE
	mode := []int{0, keep, punch | keep, punch | keep, clean, clean | keep}[m.rnd.IntN(6)]
	at := m.place(f)
	size := m.size(maxSize - at)
	f.touch(true)
	m.note(f.number, at, at+size, "fallocate %#x", mode)
	err = both(func(side int) error { return unix.Fallocate(fds[side], uint32(mode), int64(at), int64(size)) })
	if err != nil {
		return err
	}
	if mode&keep == 0 {
		f.resize(max(len(f.data), at+size))
	}
	if mode&(punch|clean) != 0 && at < len(f.data) {
		clear(f.data[at:min(at+size, len(f.data))])
	}
	return nil
}

// seek checks that holes have no data, and that data ends.
func (m *model) seek(f *file) error {
	fds, err := m.handle(f)
	if err != nil {
		return err
	}
	if err := m.flush(f, fds); err != nil {
		return err
	}
	at, size := m.place(f), len(f.data)
	data, err := unix.Seek(fds[tried], int64(at), unix.SEEK_DATA)
	m.note(f.number, at, size, "seek data: %d, %v", data, err)
	switch {
	case err == unix.ENXIO && (at >= size || zero(f.data[at:])):
	case err != nil:
		return fmt.Errorf("SEEK_DATA from %d of %d on: %w", at, size, err)
	case int(data) < at || int(data) >= size || !zero(f.data[at:data]):
		return &difference{f, at, fmt.Sprintf("SEEK_DATA from %d of %d on gives %d", at, size, data)}
	}
	hole, err := unix.Seek(fds[tried], int64(at), unix.SEEK_HOLE)
	m.note(f.number, at, size, "seek hole: %d, %v", hole, err)
	switch {
	case err == unix.ENXIO && at >= size:
	case err != nil:
		return fmt.Errorf("SEEK_HOLE from %d of %d on: %w", at, size, err)
	case int(hole) < at || int(hole) > size || int(hole) < size && f.data[hole] != 0:
		return &difference{f, at, fmt.Sprintf("SEEK_HOLE from %d of %d on gives %d", at, size, hole)}
	}
	return nil
}

// flush makes the kernel write back mapped pages, which it does not do before SEEK_DATA.
func (m *model) flush(f *file, fds pair) error {
	if !f.mapped {
		return nil
	}
	f.mapped = false
	return unix.SyncFileRange(fds[tried], 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
}

func (m *model) copy(f *file) error {
	to := m.files[m.rnd.IntN(len(m.files))]
	from, err := m.handle(f)
	if err != nil {
		return err
	}
	into, err := m.handle(to)
	if err != nil {
		return err
	}
	at, off := m.place(f), m.place(to)
	size := min(m.size(maxSize), maxSize-off)
	if to == f {
		if size = min(size, len(f.data)-at); size <= 0 || at < off+size && off < at+size {
			return nil
		}
	}
	to.touch(true)
	n := max(0, min(size, len(f.data)-at))
	m.note(f.number, at, at+n, "copied to file %d at %d", to.number, off)
	m.note(to.number, min(off, len(to.data)), off+n, "copied from file %d at %d", f.number, at)
	err = both(func(side int) error {
		r, w := int64(at), int64(off)
		for left := size; left > 0; {
			k, err := unix.CopyFileRange(from[side], &r, into[side], &w, left, 0)
			if err != nil {
				return err
			}
			if k == 0 {
				break
			}
			left -= k
		}
		if int(r)-at != n {
			return fmt.Errorf("copied %d bytes, want %d", int(r)-at, n)
		}
		return nil
	})
	if err == nil && n > 0 {
		to.resize(max(len(to.data), off+n))
		copy(to.data[off:], f.data[at:at+n])
	}
	return err
}

func (m *model) stat(f *file) error {
	fds, err := m.handle(f)
	if err != nil {
		return err
	}
	return both(func(side int) error {
		var st unix.Stat_t
		if err := unix.Fstat(fds[side], &st); err != nil {
			return err
		}
		if st.Size != int64(len(f.data)) || int(st.Nlink) != f.names {
			return &difference{f, int(st.Size), fmt.Sprintf("%d bytes, %d names; want %d, %d", st.Size, st.Nlink, len(f.data), f.names)}
		}
		return nil
	})
}

func (m *model) fsync(f *file) error {
	fds, err := m.handle(f)
	if err != nil {
		return err
	}
	m.note(0, 0, 0, "fsync of file %d", f.number)
	if err := unix.Fsync(fds[tried]); err != nil {
		return err
	}
	f.mapped = false
	// The log then has all names and sizes; the content is complete except for mapped pages.
	mapped := m.mappedFiles()
	m.settled()
	for _, o := range mapped {
		o.touch(true)
	}
	return nil
}

func (m *model) mappedFiles() (all []*file) {
	for _, f := range m.files {
		if f.mapped {
			all = append(all, f)
		}
	}
	return all
}
