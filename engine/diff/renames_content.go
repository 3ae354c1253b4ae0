package diff

import (
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// byContent pairs files of the same content and links of the same target.
func (f *finder) byContent() error {
	for _, b := range bunches(f, func(_ int, n *Node) (string, bool) { return n.Target, n.Target != "" }) {
		f.match(b)
	}
	sized := bunches(f, func(_ int, n *Node) (int64, bool) { return n.Size, n.Mode.IsRegular() && n.Size > 0 })
	for _, b := range sized {
		if len(b.from) == 1 && len(b.to) == 1 {
			same, err := f.same(b.from[0], b.to[0])
			if err != nil {
				return err
			}
			if same {
				f.match(b)
			}
			continue
		}
		if err := f.byDigest(b); err != nil {
			return err
		}
	}
	return nil
}

// byDigest pairs the equal ones of several files of one size.
func (f *finder) byDigest(sized *bunch) error {
	sums := make(map[int]digest, len(sized.from)+len(sized.to))
	for _, list := range [][]int{sized.from, sized.to} {
		for _, i := range list {
			sum, ok, err := f.digest(i)
			if err != nil {
				return err
			}
			if ok {
				sums[i] = sum
			}
		}
	}
	for _, b := range bunches(f, func(i int, _ *Node) (digest, bool) { sum, ok := sums[i]; return sum, ok }) {
		f.match(b)
	}
	return nil
}

// openNode opens the file of a change for reading, -1 where it may not be
// read or is not the one that the change describes.
func (f *finder) openNode(i int) (fd int, st kernel.Stat, err error) {
	c := &f.changes[i]
	side := older
	if c.Kind == Added {
		side = newer
	}
	dir, name := split(c.Path)
	parent, err := kernel.OpenBeneath(f.root[side], dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		defer parent.Close()
		fd, err = openFile(int(parent.Fd()), name)
	}
	if err == nil {
		st, err = kernel.Lstat(fd, "")
		if n := c.node(); err == nil && (!st.IsRegular() || st.Ino != n.Ino || st.Size != n.Size || !st.MTime.Time().Equal(n.MTime)) {
			err = unix.ESTALE
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	switch {
	case gone(err), denied(err), errno(err) == unix.ENXIO:
		return -1, st, nil
	case err != nil:
		return -1, st, fail(c.Path, err)
	}
	return fd, st, nil
}

// same reports whether two files have the same content.
func (f *finder) same(from, to int) (bool, error) {
	var fd [2]int
	var st [2]kernel.Stat
	for side, i := range [2]int{from, to} {
		var err error
		if fd[side], st[side], err = f.openNode(i); err != nil || fd[side] < 0 {
			return false, err
		}
		defer unix.Close(fd[side])
	}
	if st[older].Size != st[newer].Size {
		return false, nil
	}
	differ, err := f.read.bytesDiffer(fd, &st)
	return !differ && err == nil, fail(f.changes[to].Path, err)
}

// digest sums up a file's content, if it can be read.
func (f *finder) digest(i int) (d digest, ok bool, err error) {
	fd, st, err := f.openNode(i)
	if err != nil || fd < 0 {
		return d, false, err
	}
	defer unix.Close(fd)
	if f.read.data[older] == nil {
		f.read.data[older] = make([]byte, window)
	}
	d, err = sum(f.ctx, fd, st.Size, f.read.data[older])
	return d, err == nil, fail(f.changes[i].Path, err)
}

// alike tells how much of two paired nodes is the same.
func (f *finder) alike(from, to int) (exact bool, percent int, err error) {
	a, b := f.changes[from].Old, f.changes[to].New
	switch {
	case !a.Mode.IsRegular():
		exact = a.Target == b.Target && a.Rdev == b.Rdev
	case a.Size == b.Size && (a.Size == 0 || f.root[older] < 0):
		exact = true
	case a.Size == b.Size:
		exact, err = f.same(from, to)
	}
	if exact || err != nil {
		return exact, 100, err
	}
	if !a.Mode.IsRegular() || f.root[older] < 0 {
		return false, 0, nil
	}
	percent, err = f.similarity(from, to)
	return false, percent, err
}
