package plain

import (
	"errors"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// file copies the regular file name of the directory here, with its holes, and with shared blocks if the
// filesystem supports it. errAgain: the file changed meanwhile, and no copy is left.
func (c *copier) file(here *level, name string, st *vfs.Stat) error {
	src, err := openRead(here.src, name, 0)
	if err != nil {
		return changed(err)
	}
	defer unix.Close(src)
	before, err := vfs.Lstat(src, "")
	if err != nil || inodeOf(&before) != inodeOf(st) || !before.IsRegular() {
		return errAgain
	}
	ours := before.Mount == c.mount
	if !ours {
		before.Size = 0 // a file mounted over another: the copy is empty
	}
	if err := c.write(here.dst, name, src, &before); err != nil {
		return written(err)
	}
	after, err := vfs.Lstat(src, "")
	if err != nil {
		return written(err)
	}
	if ours && (before.CTime != after.CTime || before.MTime != after.MTime || before.Size != after.Size) {
		if err := unix.Unlinkat(here.dst, name, 0); err != nil {
			return written(err)
		}
		return errAgain
	}
	return nil
}

// write creates the file name in the directory dir of the copy, with the content and the attributes (st) of
// the open file src.
func (c *copier) write(dir int, name string, src int, st *vfs.Stat) error {
	var dst int
	var whole bool // the content is cloned
	err := c.step("make a file", func() (err error) {
		if whole = vfs.CloneTo(dir, name, src) == nil; whole {
			if dst, err = openRead(dir, name, 0); err == nil {
				return nil
			}
			whole = false // the mode gives the owner no permission
			if err := unix.Unlinkat(dir, name, 0); err != nil {
				return err
			}
		}
		dst, err = unix.Openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	if st.Size > 0 && !whole {
		if err := c.step("copy a file's content", func() error { return c.content(dst, src, st.Size) }); err != nil {
			return err
		}
	}
	return c.finish(src, dst, st)
}

// content fills dst with the first size bytes of src: as a clone of the blocks, or else by copying the data
// without its holes.
func (c *copier) content(dst, src int, size int64) error {
	if !c.noClone {
		err := vfs.CloneFD(dst, src)
		if err == nil {
			return nil
		}
		// EINVAL concerns this file only (a swap file, or other flags on btrfs).
		c.noClone = !errors.Is(err, unix.EINVAL)
	}
	for at := int64(0); at < size; {
		data, err := unix.Seek(src, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole up to the end
		} // a hole up to the end
		hole := size
		if err == nil {
			hole, err = unix.Seek(src, data, unix.SEEK_HOLE)
		}
		if err != nil { // a filesystem without SEEK_DATA
			data, hole = at, size
		}
		if hole = min(hole, size); data >= hole {
			break
		}
		if err := c.extent(dst, src, data, hole); err != nil {
			return err
		}
		at = hole
	}
	return unix.Ftruncate(dst, size)
}

const stretch = 8 << 20 // bytes between two checks of the context

// extent copies the bytes of src between the offsets from and to into dst. It stops early if the file was
// truncated; the caller then finds another size.
func (c *copier) extent(dst, src int, from, to int64) error {
	for from < to {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := vfs.CopyRange(dst, src, from, int(min(to-from, stretch)))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			n, err = c.byHand(dst, src, from, to)
		}
		if err != nil || n == 0 {
			return err
		}
		from += int64(n)
	}
	return nil
}

// byHand copies at most one buffer of the bytes of src between the offsets from and to into dst, and returns
// how many it copied. It is for filesystems without copy_file_range(2).
func (c *copier) byHand(dst, src int, from, to int64) (int, error) {
	if c.buf == nil {
		c.buf = make([]byte, 256<<10)
	}
	n, err := unix.Pread(src, c.buf[:min(int64(len(c.buf)), to-from)], from)
	if err != nil {
		return 0, err
	}
	for done := 0; done < n; {
		w, err := unix.Pwrite(dst, c.buf[done:n], from+int64(done))
		if err != nil {
			return 0, err
		}
		done += w
	}
	return n, nil
}
