package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A sandbox must not see the state directory of other sandboxes. The usual ones are hidden by their names. [Register]
// lists the others of a user in a directory of that user's home, which is hidden itself. A state directory in turn
// lists the directories in which its backends store data outside of it. Both lists are directories with a symbolic link
// for each entry, so that processes add entries at the same time without a lock.

// Registry is the path, relative to a home directory, of the list of this user's state directories at unusual places.
const Registry = ".local/state/snapfs-directories"

// The usual state directories; the first is relative to a home directory.
const (
	usualOfUser = ".local/state/snapfs"
	usualOfRoot = "/var/lib/snapfs"
)

// outside is the name, in a state directory, of the list of data directories outside of it.
const outside = "outside"

// maxListed is how many entries of a list are read. Another user may own the list. One of manyListed entries is long.
const (
	maxListed  = 1000
	manyListed = 16
)

// Register adds the state directory state to the list of this user in the home directory home, so that later sandboxes
// of this user and of root do not see it. It does nothing for a usual state directory, and where this user does not own
// home or may not write to it. To a long list it adds after it has removed entries of directories that do not exist; a
// short one keeps them, since a directory may be on a disk that is not mounted. Cost: two system calls if state is
// listed.
func Register(home, state string) error {
	if !filepath.IsAbs(home) || state == filepath.Join(home, usualOfUser) || state == usualOfRoot {
		return nil
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, home)
	if err != nil || int(st.UID) != os.Geteuid() {
		return nil //nolint:nilerr // without a home of its own, such as that of a service, the user has no list
	}
	list := filepath.Join(home, Registry)
	name := filepath.Join(list, entryOf(state))
	if _, err = vfs.Lstat(unix.AT_FDCWD, name); err == nil {
		return nil
	}
	err = os.MkdirAll(list, 0o700)
	if err == nil {
		forget(list)
		err = enlist(name, state)
	}
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
		return nil // as for a service with a read-only home
	}
	return errs.With("listing the state directory in", list, err)
}

// enlist makes the symbolic link name to the directory dir. One that exists is no error.
func enlist(name, dir string) error {
	err := os.Symlink(dir, name)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// forget removes the links in list, if that is long, to directories that do not exist any more. What it cannot read or
// remove stays.
func forget(list string) {
	entries, err := os.ReadDir(list)
	if err != nil || len(entries) < manyListed {
		return
	}
	for _, e := range entries {
		name := filepath.Join(list, e.Name())
		if to, err := os.Readlink(name); err == nil && isGone(to) {
			_ = os.Remove(name) // readers skip it
		}
	}
}

// isGone reports whether nothing is at path. A path below a directory that this process may not enter is not gone.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// entryOf returns the name of the link for the directory dir in a list. A path itself may be too long for a file name.
func entryOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:16])
}

// addOutside lists the directory dir, outside of the state directory, among those with data of the catalogue.
func (c *Catalog) addOutside(dir string) error {
	list := filepath.Join(c.dir, outside)
	name := filepath.Join(list, entryOf(dir))
	err := enlist(name, dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(list, 0o700); err == nil {
			err = enlist(name, dir)
		}
	}
	if err != nil {
		return fail("making", name, err)
	}
	return nil
}

// Outside returns the directories outside of the state directory in which its backends store data, as far as they
// exist. Cost: one system call if there are none.
func (c *Catalog) Outside() []string {
	return listed(filepath.Join(c.dir, outside), func(path string) string { return path })
}

// Others returns the directories with data of sandboxes to which paths lead: paths has hidden places of all users, among
// which are usual state directories and lists of other ones ([Registry]). The result has the listed state directories,
// and the directories outside of each state directory in which its backends store data. A list has an effect only on
// directories of its owner. at maps a path to where it can be read. Cost: one system call for each state directory and
// each list, and three for each entry of a list.
func Others(paths []string, at func(string) string) (dirs []string) {
	for _, p := range paths {
		switch {
		case strings.HasSuffix(p, "/"+Registry):
			for _, state := range listed(p, at) {
				if Is(at(state)) {
					dirs = append(append(dirs, state), listed(filepath.Join(state, outside), at)...)
				}
			}
		case strings.HasSuffix(p, "/"+usualOfUser) || p == usualOfRoot:
			dirs = append(dirs, listed(filepath.Join(p, outside), at)...)
		}
	}
	return dirs
}

// listed returns the directories to which the links in the directory list lead. It leaves out those that do not exist
// or do not belong to the owner of list, and reads at most maxListed links. at maps a path to where it can be read.
func listed(list string, at func(string) string) (dirs []string) {
	f, err := vfs.OpenAt(unix.AT_FDCWD, at(list), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	owner, err := vfs.Lstat(int(f.Fd()), "")
	if err != nil {
		return nil
	}
	names, _ := f.Readdirnames(maxListed) // after an error as many as were read
	for _, name := range names {
		dir, err := os.Readlink(filepath.Join(at(list), name))
		if err != nil || !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			continue
		}
		st, err := vfs.Lstat(unix.AT_FDCWD, at(dir)+"/.") // a path that ends so is followed
		if err == nil && st.IsDir() && st.UID == owner.UID {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
