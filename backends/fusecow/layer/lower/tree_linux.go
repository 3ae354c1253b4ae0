// Package lower reads the lower of a copy-on-write filesystem: inodes by the path at which they were found, and
// open descriptors of its directories. It must not know layers nor the inode table above the lower.
package lower

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Tree is an open lower: the read-only directory tree that a copy-on-write filesystem shows below its
// layers.
type Tree struct {
	root int    // descriptor of the root
	dev  uint32 // device of the root
	fds  *FDCache
	late lateReads
	// reads are the versions of files that were read, see [Tree.ReadBefore].
	reads firstReads
	// hidden says which names no lookup may find, see [Tree.Hide]; nil for none.
	hidden atomic.Pointer[hiddenNames]
	fixed  fixedNames // see [Tree.Fixes]
}

// hiddenNames are names of a lower that are invisible.
type hiddenNames struct {
	// dirs holds, by name, the paths of the directories in which that name is hidden; by "", those in which all names
	// are but those of which shown has the path.
	dirs  map[string][]string
	shown map[string]bool
}

// rootIno is the inode number of the root directory of a FUSE filesystem, FUSE_ROOT_ID.
const rootIno = 1

// Open opens the lower directory tree at path and returns the attributes of its root. The tree caches
// descriptors of its directories in fds. Unless since is zero, it records files that have this change time or
// a later one when they are opened, see [Tree.LateReads].
func Open(path string, fds *FDCache, since vfs.Timestamp) (*Tree, vfs.Stat, error) {
	root, err := openRoot(path)
	if err != nil {
		return nil, vfs.Stat{}, err
	}
	t := &Tree{root: root, fds: fds, late: lateReads{since: since}}
	st, err := vfs.Lstat(root, "")
	if err != nil {
		t.Close()
		return nil, st, err
	}
	t.dev = uint32(st.Dev)
	return t, st, nil
}

// Close closes the descriptor of the root of the lower directory tree. The owner of the FDCache closes the
// other descriptors.
func (t *Tree) Close() { unix.Close(t.root) }

// RootFD returns the O_PATH descriptor of the lower's root directory, which stays open until Close.
func (t *Tree) RootFD() int { return t.root }

// openRoot returns an O_PATH descriptor of the lower directory without its submounts, through a detached copy
// of its mount. For an ordinary user, who may not do that, it opens the path itself, submounts included.
func openRoot(path string) (int, error) {
	if m, err := mount.CloneTree(path); err == nil {
		defer m.Close()
		path = vfs.FDPath(m) + "/."
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// DirFD returns an O_PATH descriptor of the lower directory o, from the cache if there is one; the caller must
// release it with [FDCache.Put].
func (t *Tree) DirFD(o *Ref) (*FD, error) {
	return t.fds.Get(DirKey(o), func() (int, error) {
		return t.Open(o, unix.O_PATH|unix.O_DIRECTORY)
	})
}

// OpenForListing opens the lower directory d for reading its entries; the caller closes the file. It works
// also where the caller lacks search permission.
func OpenForListing(d *FD) (*os.File, error) {
	own, err := vfs.OpenDir(d.Num, ".") // a fresh descriptor has its own read position
	if errors.Is(err, unix.EACCES) {
		own, err = os.OpenFile("/proc/self/fd/"+strconv.Itoa(d.Num), os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	return own, err
}

// Stale returns ESTALE after the lower inode of o turned out to be gone. It drops the descriptors of the
// directories on the path, which may be gone as well, so that they are opened again.
func (t *Tree) Stale(o *Ref) error {
	for ; o != nil; o = o.Dir {
		t.fds.Drop(DirKey(o))
	}
	return unix.ESTALE
}

// Open returns a new descriptor of the lower inode o, which the caller closes; flags are those of open(2).
// ESTALE means that its name now belongs to another inode. For a directory any directory of that name will
// do, because changes in it are recorded by name.
func (t *Tree) Open(o *Ref, flags int) (int, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK
	}
	path := o.Path()
	n, err := vfs.OpenBeneathFD(t.root, path, flags|unix.O_NOFOLLOW, 0)
	if err != nil {
		for _, other := range []error{fs.ErrNotExist, unix.ENOTDIR, unix.ELOOP} {
			if errors.Is(err, other) {
				return -1, t.Stale(o)
			}
		}
		return -1, err
	}
	if flags&unix.O_DIRECTORY != 0 {
		return n, nil
	}
	st, err := vfs.Lstat(n, "")
	if err == nil && t.IdentityOf(&st) != o.Identity {
		err = t.Stale(o)
	}
	if err != nil {
		unix.Close(n)
		return -1, err
	}
	if st.IsRegular() {
		t.late.add(o, st.CTime)
		t.reads.add(path, &st)
	}
	return n, nil
}

// Hide makes these paths, relative to the root of the lower directory tree, invisible, now and when they
// appear later. A path that ends with a slash stands for all names in that directory, but for those of which a path
// follows that begins with a slash. The paths replace those of an earlier call. Entries that the kernel has looked up
// before stay visible. A path that begins with two slashes is not hidden but fixed, see [Tree.Fixes]; it stays fixed
// after later calls.
func (t *Tree) Hide(paths []string) {
	hidden := hiddenNames{dirs: make(map[string][]string, len(paths)), shown: map[string]bool{}}
	for _, p := range paths {
		if fixed, is := strings.CutPrefix(p, "//"); is {
			t.fixed.add(fixed)
			continue
		}
		if shown, is := strings.CutPrefix(p, "/"); is {
			hidden.shown[shown] = true
			continue
		}
		dir, name := path.Split(p)
		hidden.dirs[name] = append(hidden.dirs[name], path.Clean(dir))
	}
	t.hidden.Store(&hidden)
}

// Hides reports whether [Tree.Hide] made the entry called name in the lower directory dir invisible, so that
// no lookup may find it.
func (t *Tree) Hides(dir *Ref, name string) bool {
	hidden := t.hidden.Load()
	if hidden == nil {
		return false
	}
	if dirs := hidden.dirs[name]; len(dirs) > 0 && slices.Contains(dirs, dir.Path()) {
		return true
	}
	all := slices.ContainsFunc(hidden.dirs[""], func(d string) bool { return strings.HasSuffix(d, dir.Name) && d == dir.Path() })
	return all && !hidden.shown[path.Join(dir.Path(), name)]
}

// Stat returns the attributes of the entry called name in the lower directory dir. A name that [Tree.Hide]
// made invisible is ENOENT. A fixed name has those of its first inode.
func (t *Tree) Stat(dir *Ref, name string) (vfs.Stat, error) {
	if t.Hides(dir, name) {
		return vfs.Stat{}, unix.ENOENT
	}
	if t.Fixes(dir, name) {
		return t.fixed.stat(path.Join(dir.Path(), name), func() (vfs.Stat, error) { return t.current(dir, name) })
	}
	return t.current(dir, name)
}

// current returns the current attributes of the entry called name in the lower directory dir, hidden or fixed or not.
func (t *Tree) current(dir *Ref, name string) (vfs.Stat, error) {
	d, err := t.DirFD(dir)
	if err != nil {
		return vfs.Stat{}, err
	}
	defer t.fds.Put(d)
	return vfs.Lstat(d.Num, name)
}

// Names reports whether the entry called name in the lower directory dir is still the inode with the identity
// id, which this filesystem shows under the inode number ino.
func (t *Tree) Names(dir *Ref, name string, id *logfile.Identity, ino uint64) bool {
	st, err := t.Stat(dir, name)
	return err == nil && t.IdentityOf(&st) == *id && t.InoOf(id) == ino
}

// Has reports whether the lower directory dir has an entry called name, which a layer has to hide when the
// name is removed.
func (t *Tree) Has(dir *Ref, name string) (bool, error) {
	_, err := t.Stat(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// With calls do with a descriptor of the directory that contains the lower inode o, and with o's name there,
// for a system call that takes both.
func (t *Tree) With(o *Ref, do func(dirfd int, name string) error) error {
	dir, name := o.Dir, o.Name
	if dir == nil {
		dir, name = o, ""
	}
	d, err := t.DirFD(dir)
	if err != nil {
		return err
	}
	defer t.fds.Put(d)
	return do(d.Num, name)
}

// InoOf returns the inode number under which this filesystem shows the lower inode id. That is its own number
// if it is on the filesystem of the lower's root, which is the usual case, and else a hash.
func (t *Tree) InoOf(id *logfile.Identity) uint64 {
	if id.Dev == 0 && id.Ino > rootIno && id.Ino < hashedInos {
		return id.Ino
	}
	// The 64-bit finaliser of MurmurHash3 over both numbers.
	h := id.Ino ^ uint64(id.Dev)*0x9e3779b97f4a7c15
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return hashedInos | h&(hashedInos-1)
}

// hashedInos is the smallest inode number that this filesystem gives lower inodes on other filesystems than
// the root's, whose own numbers may collide.
const hashedInos = 1 << 60

// StillLeads reports whether the path of o still leads to the same lower inode: the user of the lower may
// have renamed it. Cost: three system calls. Only inodes with a second name need this check.
func (t *Tree) StillLeads(o *Ref) bool {
	fd, err := vfs.OpenBeneathFD(t.root, o.Path(), unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP)
	}
	defer unix.Close(fd)
	st, err := vfs.Lstat(fd, "")
	return err != nil || t.IdentityOf(&st) == o.Identity
}

// List returns the entries of the lower directory o. It opens a descriptor of its own, because the read
// position belongs to the descriptor.
func (t *Tree) List(o *Ref) ([]vfs.Entry, error) {
	d, err := t.DirFD(o)
	if err != nil {
		return nil, err
	}
	defer t.fds.Put(d)
	own, err := OpenForListing(d)
	if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
		err = t.Stale(o)
	}
	if err != nil {
		return nil, err
	}
	defer own.Close()
	all, err := vfs.Entries(int(own.Fd()))
	if t.hidden.Load() != nil {
		all = slices.DeleteFunc(all, func(e vfs.Entry) bool { return t.Hides(o, e.Name) })
	}
	return all, err
}
