package diff

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// byContent pairs deleted and added files of equal content, and symbolic links of equal target, as renames.
func (f *finder) byContent() error {
	for _, b := range matchSets(f, func(_ int, n *Node) (string, bool) { return n.Target, n.Target != "" }) {
		f.matchExact(b)
	}
	f.byIdentity()
	sized := matchSets(f, func(_ int, n *Node) (int64, bool) { return n.Size, n.Mode.IsRegular() && n.Size > 0 })
	for _, b := range sized {
		if len(b.from) == 1 && len(b.to) == 1 {
			same, err := f.same(b.from[0], b.to[0])
			if err != nil {
				return err
			}
			if same {
				f.matchExact(b)
			}
			continue
		}
		if err := f.byDigest(b); err != nil {
			return err
		}
	}
	return nil
}

// byIdentity pairs files that have not been written since before the older side was captured: both
// sides show one inode with one change time, which only the kernel sets. It needs no file to be
// read, so that a moved directory costs little. Times within [Racy] of the capture prove nothing,
// because a file may have been written again within one tick of the clock.
func (f *finder) byIdentity() {
	if f.read.opt.Taken.IsZero() {
		return
	}
	settled := f.read.opt.Taken.Add(-Racy)
	type identity struct {
		ino                uint64
		size, mtime, ctime int64
	}
	for _, b := range matchSets(f, func(_ int, n *Node) (identity, bool) {
		k := identity{ino: n.Ino, size: n.Size, mtime: n.MTime.UnixNano(), ctime: n.CTime.UnixNano()}
		return k, n.Mode.IsRegular() && n.Size > 0 && vfs.ChangedBefore(n.CTime, settled)
	}) {
		f.matchExact(b)
	}
}

// byDigest pairs deleted and added files of equal content as renames. sized has those of one size; it
// compares them by their digests.
func (f *finder) byDigest(sized *matchSet) error {
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
	for _, b := range matchSets(f, func(i int, _ *Node) (digest, bool) { sum, ok := sums[i]; return sum, ok }) {
		f.matchExact(b)
	}
	return nil
}

// matchExact pairs the deleted with the added changes of the set b, whose files are known to be equal, as
// exact renames.
func (f *finder) matchExact(b *matchSet) {
	f.match(b)
	for _, i := range b.from {
		f.exact[i] = !f.unpaired(i)
	}
}

// openNode opens the file of change i for reading; the caller closes it. It returns nil if the file is not
// readable or no longer matches the change.
func (f *finder) openNode(i int) (file *os.File, st vfs.Stat, err error) {
	c := &f.changes[i]
	side := older
	if c.Kind == Added {
		side = newer
	}
	if file, err = OpenFile(f.root[side], c.Path); err == nil {
		st, err = vfs.Lstat(int(file.Fd()), "")
		if n := c.node(); err == nil && (!st.IsRegular() || st.Ino != n.Ino || st.Size != n.Size || !st.MTime.Time().Equal(n.MTime)) {
			err = unix.ESTALE
		}
		if err != nil {
			file.Close()
		}
	}
	switch {
	case gone(err), denied(err), errno(err) == unix.ENXIO:
		return nil, st, nil
	case err != nil:
		return nil, st, fail(c.Path, err)
	}
	return file, st, nil
}

// same reports whether the deleted file of change from and the added one of change to have equal content.
func (f *finder) same(from, to int) (bool, error) {
	var fd [2]int
	var st [2]vfs.Stat
	for side, i := range [2]int{from, to} {
		file, stat, err := f.openNode(i)
		if err != nil || file == nil {
			return false, err
		}
		defer file.Close()
		fd[side], st[side] = int(file.Fd()), stat
	}
	if st[older].Size != st[newer].Size {
		return false, nil
	}
	differ, err := f.read.bytesDiffer(fd, &st)
	return !differ && err == nil, fail(f.changes[to].Path, err)
}

// digest returns the digest of the content of the file that change i adds or deletes, to find renamed files.
// ok is false if the file is not readable.
func (f *finder) digest(i int) (d digest, ok bool, err error) {
	file, st, err := f.openNode(i)
	if err != nil || file == nil {
		return d, false, err
	}
	defer file.Close()
	if f.read.data[older] == nil {
		f.read.data[older] = make([]byte, window)
	}
	d, err = sum(f.ctx, int(file.Fd()), st.Size, f.read.data[older])
	return d, err == nil, fail(f.changes[i].Path, err)
}

// similarityOf returns, for the rename of change from to change to, whether both have equal content, and the
// equal part in percent.
func (f *finder) similarityOf(from, to int) (exact bool, percent int, err error) {
	a, b := f.changes[from].Old, f.changes[to].New
	switch {
	case f.exact[from]:
		exact = true
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
