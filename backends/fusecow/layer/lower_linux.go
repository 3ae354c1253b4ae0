package layer

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// lowerDirFD returns a descriptor of the lower directory o.
func (f *FS) lowerDirFD(o *lowerRef) (*fd, error) {
	return f.fds.get(dirKey(o), func() (int, error) {
		return f.openLower(o, unix.O_PATH|unix.O_DIRECTORY)
	})
}

// openForListing opens a lower directory for reading. It works also where the caller lacks search permission.
func openForListing(d *fd) (*os.File, error) {
	own, err := vfs.OpenDir(d.n, ".") // a fresh descriptor has its own read position
	if errors.Is(err, unix.EACCES) {
		own, err = os.OpenFile("/proc/self/fd/"+strconv.Itoa(d.n), os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	return own, err
}

// lowerGone reports whether err means that the lower directory of a dirty dir no longer exists. dir then has
// only the names that the layers record. Detach needs to see the error, so it gets false.
func (f *FS) lowerGone(dir *inode, err error) bool {
	return (errors.Is(err, unix.ESTALE) || errors.Is(err, fs.ErrNotExist)) && dir.changed && !f.detaching
}

// lowerStale returns ESTALE after the lower inode of o turned out to be gone. It drops the descriptors of the
// directories on the path, which may be gone as well, so that they are opened again.
func (f *FS) lowerStale(o *lowerRef) error {
	for ; o != nil; o = o.dir {
		f.fds.drop(dirKey(o))
	}
	return unix.ESTALE
}

// openLower opens a lower inode. ESTALE means that its name now belongs to another inode. For a directory any
// directory of that name will do, because changes in it are recorded by name.
func (f *FS) openLower(o *lowerRef, flags int) (int, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK
	}
	n, err := vfs.OpenBeneathFD(f.lower, o.path(), flags|unix.O_NOFOLLOW, 0)
	if err != nil {
		for _, other := range []error{fs.ErrNotExist, unix.ENOTDIR, unix.ELOOP} {
			if errors.Is(err, other) {
				return -1, f.lowerStale(o)
			}
		}
		return -1, err
	}
	if flags&unix.O_DIRECTORY != 0 {
		return n, nil
	}
	st, err := vfs.Lstat(n, "")
	if err == nil && f.identityOf(&st) != o.Identity {
		err = f.lowerStale(o)
	}
	if err != nil {
		unix.Close(n)
		return -1, err
	}
	if st.IsRegular() {
		f.lateReads.add(o, st.CTime)
	}
	return n, nil
}

// statLower looks up name in a lower directory.
func (f *FS) statLower(dir *lowerRef, name string) (vfs.Stat, error) {
	d, err := f.lowerDirFD(dir)
	if err != nil {
		return vfs.Stat{}, err
	}
	defer f.fds.put(d)
	return vfs.Lstat(d.n, name)
}

// lowerHas reports whether a lower directory has an entry called name.
func (f *FS) lowerHas(dir *lowerRef, name string) (bool, error) {
	_, err := f.statLower(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// withLower calls do with a descriptor of o's lower directory and its name there.
func (f *FS) withLower(o *lowerRef, do func(dirfd int, name string) error) error {
	dir, name := o.dir, o.name
	if dir == nil {
		dir, name = o, ""
	}
	d, err := f.lowerDirFD(dir)
	if err != nil {
		return err
	}
	defer f.fds.put(d)
	return do(d.n, name)
}

// inoOf returns the inode number that a lower inode gets here. That is its own number if it is on the
// filesystem of the lower's root, which is the usual case.
func (f *FS) inoOf(id *logfile.Identity) uint64 {
	if id.Dev == 0 && id.Ino > rootID && id.Ino < hashedInos {
		return id.Ino
	}
	// The 64-bit finaliser of MurmurHash3 over both numbers.
	h := id.Ino ^ uint64(id.Dev)*0x9e3779b97f4a7c15
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return hashedInos | h&(hashedInos-1)
}

const (
	rootID     = 1       // FUSE_ROOT_ID
	hashedInos = 1 << 60 // first of the numbers for inodes that cannot keep theirs
)

// loadLower loads the attributes of a clean inode from the lower before it becomes dirty.
func (f *FS) loadLower(n *inode) error {
	if n.changed || n.lower == nil {
		return nil
	}
	return f.withLower(n.lower, func(dirfd int, name string) (err error) {
		st, err := vfs.Lstat(dirfd, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && f.identityOf(&st) != n.lower.Identity {
			return f.lowerStale(n.lower)
		}
		if err != nil {
			return err
		}
		if n.xattrs, err = vfs.Xattrs(dirfd, name); err != nil {
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
