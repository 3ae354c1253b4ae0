//go:build linux

package mounts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A user namespace cannot mount an image of whiteouts, but a directory of a disk can be the overlay layer with them,
// and any user may make whiteouts (Linux 5.8). The directory is made once, for all containers that hide the same names,
// and its content is never changed: a running container may have it as a layer. The supervisor of each such container
// has it locked (flock), and [PruneStored] removes only those that nobody has locked.

// maxWhiteoutDirs is how many directories with whiteouts are made, each of some tens of inodes. A new one is needed
// when a secret is written where there was none. A container beyond that has its whiteouts in a tmpfs.
const maxWhiteoutDirs = 128

// The time of a directory's last use is its modification time, which a start sets if it is older than usedEvery. After
// unusedTime without a use it is removed.
const (
	usedEvery  = 24 * time.Hour
	unusedTime = 30 * 24 * time.Hour
)

// fewWhiteouts is how many whiteouts are cheaper in a tmpfs than in a layer of their own.
const fewWhiteouts = 16

// storedWhiteouts returns a directory below images with whiteouts for the absent names of hidden, to be a layer of the
// overlay o directly above its tree. It makes the directory if there is none. It returns "" where that is not possible:
// on filesystems that cannot hold whiteouts, such as overlayfs, and where the tree could contain the directory, which
// overlayfs refuses. The caller closes held when no container has the layer any more: until then it is not removed.
// Cost: 20 µs, 5 ms for a new directory on an idle disk.
func storedWhiteouts(images string, o *Overlay, hidden []Hidden) (dir string, held *os.File) {
	n := 0
	for _, h := range hidden {
		n += len(h.Absent)
	}
	if images == "" || n < fewWhiteouts || o == nil || o.Upper == "" || len(o.Base) > 0 || !o.Nested && !outside(filepath.Dir(images), o.Lower[len(o.Lower)-1]) {
		return "", nil
	}
	dir = filepath.Join(storedIn(images), keyOf(hidden, nil))
	held, err := holdStored(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeWhiteoutDir(dir, hidden); err == nil {
			held, err = holdStored(dir)
		}
	}
	if err != nil {
		return "", nil
	}
	return dir, held
}

// storedIn returns the directory in the directory images that contains the directories with whiteouts.
func storedIn(images string) string { return filepath.Join(images, "names") }

// holdStored opens and locks the directory with whiteouts dir, so that it is not removed before the caller closes it,
// and notes that it is used. Errors: fs.ErrNotExist; others for a directory that is being removed, and for a file,
// which says that the filesystem holds no whiteouts.
func holdStored(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := lockStored(f, dir, unix.LOCK_SH)
	if err == nil && time.Since(info.ModTime()) > usedEvery {
		now := time.Now()
		err = os.Chtimes(dir, now, now)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// lockStored locks f, which was opened as path, without waiting, and describes it. Errors: unix.EWOULDBLOCK;
// fs.ErrNotExist if f is not at path any more.
func lockStored(f *os.File, path string, how int) (os.FileInfo, error) {
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		return nil, os.NewSyscallError("flock", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	there, err := os.Lstat(path)
	if err == nil && !os.SameFile(info, there) {
		err = fs.ErrNotExist
	}
	return info, err
}

// PruneStored removes the directories with whiteouts below images that no container has used for 30 days. It leaves one
// that a running container has as a layer, also if the clock was set. The next start that needs one makes it again.
func PruneStored(images string) error {
	all := storedIn(images)
	list, err := os.ReadDir(all)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), unfinished) {
			err = errors.Join(err, pruneStored(all, e.Name()))
		}
	}
	return err
}

// pruneStored removes the entry name of the directory all, unless it is in use or was used lately.
func pruneStored(all, name string) error {
	path := filepath.Join(all, name)
	f, err := os.OpenFile(path, unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := lockStored(f, path, unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()) <= unusedTime {
		return nil
	}
	gone := filepath.Join(all, unfinished+name)
	if err == nil {
		err = os.Rename(path, gone) // at once, since a process that is killed here must leave all or nothing
	}
	if err == nil {
		err = os.RemoveAll(gone)
	}
	return err
}

// outside reports whether the directory dir certainly lies outside of the directory tree, so that both can be layers of
// one overlay. The names do not say that: another mount may have a part of the same filesystem.
func outside(dir, tree string) bool {
	root, err := vfs.Lstat(unix.AT_FDCWD, tree)
	if err != nil {
		return false
	}
	at, err := vfs.Lstat(unix.AT_FDCWD, dir+"/.")
	if err != nil {
		return false
	}
	if at.Mount != root.Mount || at.Mount == 0 {
		return at.Dev != root.Dev && oneDevice(dir)
	}
	mount := at.Mount
	for at.Mount == mount && len(dir) < unix.PathMax {
		if at.Ino == root.Ino && at.Dev == root.Dev {
			return false
		}
		dir += "/.."
		up, err := vfs.Lstat(unix.AT_FDCWD, dir)
		if err != nil {
			return false
		}
		if up.Ino == at.Ino && up.Dev == at.Dev {
			return true // the root directory
		}
		at = up
	}
	return at.Mount != mount
}

// oneDevice reports whether all files of the filesystem at path have one device number. On btrfs each subvolume has
// another one.
func oneDevice(path string) bool {
	var at unix.Statfs_t
	if err := unix.Statfs(path, &at); err != nil {
		return false
	}
	switch at.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}

// unfinished begins the names of directories that are not complete: those being made or removed. One that is an hour
// old was left by a process that was killed.
const unfinished = "new-"

// makeWhiteoutDir makes the directory dir with whiteouts for the absent names of hidden, or an empty file of that name
// if the filesystem cannot hold whiteouts. After an error dir does not exist, also after a power loss.
func makeWhiteoutDir(dir string, hidden []Hidden) error {
	all := filepath.Dir(dir)
	if err := os.MkdirAll(all, 0o700); err != nil {
		return err
	}
	if err := roomForWhiteouts(all); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(all, unfinished)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }() // after the rename there is nothing to remove
	err = fillWhiteoutDir(temp, hidden)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return os.WriteFile(dir, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(temp, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have made it
		return err
	}
	return nil
}

// roomForWhiteouts returns an error if there are too many entries in the directory all. It removes those that a process
// left half made.
func roomForWhiteouts(all string) error {
	list, err := os.ReadDir(all)
	if err != nil {
		return err
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), unfinished) && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(all, e.Name())) // the next call tries again
		}
	}
	if len(list) >= maxWhiteoutDirs {
		return &os.PathError{Op: "add to", Path: all, Err: unix.EMLINK}
	}
	return nil
}

// fillWhiteoutDir makes the directories of hidden in dir, and whiteouts for their absent names, all on stable storage.
func fillWhiteoutDir(dir string, hidden []Hidden) error {
	first := filepath.Join(dir, whiteoutName)
	if err := unix.Mknod(first, unix.S_IFCHR, 0); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	made := map[string]bool{".": true}
	for _, h := range hidden {
		for d := filepath.Clean(h.Dir); !made[d]; d = filepath.Dir(d) {
			made[d] = true
		}
		if err := os.MkdirAll(filepath.Join(dir, h.Dir), 0o700); err != nil {
			return err
		}
	}
	for _, h := range hidden {
		for _, name := range h.Absent {
			path := filepath.Join(dir, h.Dir, name)
			err := unix.Link(first, path)
			if err == unix.EMLINK { // btrfs allows few links in one directory
				err = unix.Mknod(path, unix.S_IFCHR, 0)
			}
			if err != nil && err != unix.EEXIST {
				return &os.PathError{Op: "link", Path: path, Err: err}
			}
		}
	}
	for d := range made {
		if err := vfs.SyncDir(filepath.Join(dir, d)); err != nil {
			return err
		}
	}
	return nil
}
