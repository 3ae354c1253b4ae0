package layer

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// directory answers with a descriptor of a directory of the tree below.
func (f *FS) directory(o *origin) (*fd, error) {
	return f.fds.get(dirKey(o), func() (int, error) {
		return f.openBelow(o, unix.O_PATH|unix.O_DIRECTORY)
	})
}

// openList opens a directory of the tree below to be listed, which who may not enter it may do.
func openList(d *fd) (*os.File, error) {
	own, err := kernel.OpenDir(d.n, ".") // the place in a list belongs to the descriptor
	if errors.Is(err, unix.EACCES) {
		own, err = os.OpenFile("/proc/self/fd/"+strconv.Itoa(d.n), os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	return own, err
}

// lost reports whether an error says that the tree below has a changed directory no more: then it has the
// names alone that the layers tell of. Who brings up what lies below must hear of it.
func (f *FS) lost(dir *node, err error) bool {
	return (errors.Is(err, unix.ESTALE) || errors.Is(err, fs.ErrNotExist)) && dir.changed && !f.raising
}

// staleBelow is ESTALE, where what the tree below has is not what was found there. The directories that it was
// found by may have gone, too: they are opened again.
func (f *FS) staleBelow(o *origin) error {
	for ; o != nil; o = o.dir {
		f.fds.drop(dirKey(o))
	}
	return unix.ESTALE
}

// openBelow opens a node of the tree below. ESTALE: another one has its name. Another
// directory will do: what has changed in it here is kept by names.
func (f *FS) openBelow(o *origin, flags int) (int, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK
	}
	n, err := kernel.OpenBeneathFD(f.lower, o.path(), flags|unix.O_NOFOLLOW, 0)
	if err != nil {
		for _, other := range []error{fs.ErrNotExist, unix.ENOTDIR, unix.ELOOP} {
			if errors.Is(err, other) {
				return -1, f.staleBelow(o)
			}
		}
		return -1, err
	}
	if flags&unix.O_DIRECTORY != 0 {
		return n, nil
	}
	st, err := kernel.Lstat(n, "")
	if err == nil && f.identityOf(&st) != o.identity {
		err = f.staleBelow(o)
	}
	if err != nil {
		unix.Close(n)
		return -1, err
	}
	if st.IsRegular() {
		f.late.note(o, st.CTime)
	}
	return n, nil
}

// statBelow looks a name up in a directory of the tree below.
func (f *FS) statBelow(dir *origin, name string) (kernel.Stat, error) {
	d, err := f.directory(dir)
	if err != nil {
		return kernel.Stat{}, err
	}
	defer f.fds.put(d)
	return kernel.Lstat(d.n, name)
}

// hasBelow reports whether a directory of the tree below has a name.
func (f *FS) hasBelow(dir *origin, name string) (bool, error) {
	_, err := f.statBelow(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// at calls do with a directory of the tree below and the name that o has in it.
func (f *FS) at(o *origin, do func(dirfd int, name string) error) error {
	dir, name := o.dir, o.name
	if dir == nil {
		dir, name = o, ""
	}
	d, err := f.directory(dir)
	if err != nil {
		return err
	}
	defer f.fds.put(d)
	return do(d.n, name)
}

// number is the inode number that a node of the tree below has here: its own
// where it is on the root's filesystem, which is the usual case.
func (f *FS) number(id *identity) uint64 {
	if id.dev == 0 && id.ino > rootID && id.ino < elsewhere {
		return id.ino
	}
	// 64-bit finaliser of MurmurHash3 over both numbers.
	h := id.ino ^ uint64(id.dev)*0x9e3779b97f4a7c15
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return elsewhere | h&(elsewhere-1)
}

const (
	rootID    = 1       // FUSE_ROOT_ID
	elsewhere = 1 << 60 // numbers of nodes that cannot keep theirs
	made      = 1 << 61 // numbers of nodes that were made above
)

// load takes over what the tree below says of a node that is to be changed.
func (f *FS) load(n *node) error {
	if n.changed || n.from == nil {
		return nil
	}
	return f.at(n.from, func(dirfd int, name string) (err error) {
		st, err := kernel.Lstat(dirfd, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && f.identityOf(&st) != n.from.identity {
			return f.staleBelow(n.from)
		}
		if err != nil {
			return err
		}
		if n.xattrs, err = kernel.Xattrs(dirfd, name); err != nil {
			return err
		}
		if st.IsSymlink() {
			n.target, err = readlink(dirfd, name)
		}
		return err
	})
}

func readlink(dirfd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dirfd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
