//go:build linux

package zfs

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/internal/zfs"
	"golang.org/x/sys/unix"
)

// errEnough ends a search for changed paths after the caller of [Backend.ListChanges] has stopped the
// iteration. No caller sees it.
var errEnough = errors.New("enough")

// A finder finds the names of changed ZFS objects by walking two states of a tree at once. A directory whose
// object is unchanged has the same names in both states and is read only in the younger one. A name that is
// another object, or exists in one state only, is yielded with Tree set. The finder reads directories only,
// never files or times.
type finder struct {
	old, new int // the roots of the trees
	changed  zfs.Objects
	emit     func(snapshot.Candidate) bool
	left     []found // directories still to read
}

// A found is a directory that both states of a tree have and that a finder has still to compare.
type found struct {
	path string
	ino  uint64
}

// findNames calls emit with the paths of the changed objects in the trees older and younger, two states of
// one dataset. It returns errEnough if emit stops it.
func findNames(ctx context.Context, older, younger string, changed zfs.Objects, emit func(snapshot.Candidate) bool) error {
	x, inoX, err := openTree(older)
	if err != nil {
		return err
	}
	defer x.Close()
	y, inoY, err := openTree(younger)
	if err != nil {
		return err
	}
	defer y.Close()
	f := finder{old: int(x.Fd()), new: int(y.Fd()), changed: changed, emit: emit}
	if inoX != inoY {
		return f.emitPath(".")
	}
	if changed.Has(inoY) && !emit(snapshot.Candidate{Path: ".", Named: true}) {
		return errEnough
	}
	f.left = []found{{".", inoY}}
	for len(f.left) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		last := len(f.left) - 1
		dir := f.left[last]
		f.left = f.left[:last]
		if err := f.dir(dir); err != nil {
			return err
		}
	}
	return nil
}

// openTree opens the directory path, which the caller closes, and reads its inode number from its entry ".":
// stat(2) returns another number for the root of a snapshot (zfs_getattr_fast of OpenZFS 2.1).
func openTree(path string) (dir *os.File, ino uint64, err error) {
	dir, err = os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, err
	}
	err = vfs.EntriesFrom(int(dir.Fd()), 0, func(e vfs.Entry, _ int64) (more bool, err error) {
		if e.Name == "." {
			ino = e.Ino
		}
		return ino == 0, nil
	})
	if err == nil && ino == 0 {
		err = &os.PathError{Op: "read", Path: path, Err: errors.New("the directory has no entry \".\"")}
	}
	if err != nil {
		dir.Close()
	}
	return dir, ino, err
}

func (f *finder) emitPath(path string) error {
	if !f.emit(snapshot.Candidate{Path: path, Tree: true}) {
		return errEnough
	}
	return nil
}

// dir yields the names in which a directory differs between the two states of the tree, and queues the
// subdirectories that both have. A filesystem mounted on it is no part of the tree.
func (f *finder) dir(dir found) error {
	var old map[string]vfs.Entry
	differs := f.changed.Has(dir.ino)
	if differs {
		list, err := entries(f.old, dir.path)
		if err != nil {
			return f.unread(dir.path, err)
		}
		old = make(map[string]vfs.Entry, len(list))
		for _, e := range list {
			old[e.Name] = e
		}
	}
	list, err := entries(f.new, dir.path)
	if err != nil {
		return f.unread(dir.path, err)
	}
	for _, e := range list {
		was, both := old[e.Name]
		delete(old, e.Name)
		switch path := below(dir.path, e.Name); {
		case differs && (!both || was != e):
			err = f.emitPath(path)
		default:
			err = f.unmoved(path, e)
		}
		if err != nil {
			return err
		}
	}
	for name := range old {
		if err := f.emitPath(below(dir.path, name)); err != nil {
			return err
		}
	}
	return nil
}

// unmoved handles the entry e at path, which is the same object in both states of the tree: it yields a
// changed object, and queues a directory to be compared.
func (f *finder) unmoved(path string, e vfs.Entry) error {
	isDir := e.Type == unix.DT_DIR
	if f.changed.Has(e.Ino) && !f.emit(snapshot.Candidate{Path: path, Named: isDir}) {
		return errEnough
	}
	if isDir || e.Type == unix.DT_UNKNOWN {
		f.left = append(f.left, found{path, e.Ino})
	}
	return nil
}

// unread handles the directory at path, which could not be read because of err: it skips one on which another
// filesystem is mounted, and yields a deleted one with Tree set.
func (f *finder) unread(path string, err error) error {
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return f.emitPath(path)
	}
	return err
}

// control is the inode number of the directory .zfs, which no object has (ZFSCTL_INO_ROOT of
// include/sys/zfs_ctldir.h).
const control = 0x0000FFFFFFFFFFFF

// entries lists the directory at path inside the open directory root, a state of a tree that is compared with
// another. It leaves out ZFS's own directory .zfs.
func entries(root int, path string) (list []vfs.Entry, err error) {
	fd, err := vfs.OpenDirOnMount(root, path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	err = vfs.EachEntry(fd, func(name []byte, ino uint64, typ uint8) error {
		if ino != control {
			list = append(list, vfs.Entry{Name: string(name), Ino: ino, Type: typ})
		}
		return nil
	})
	return list, err
}

func below(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
