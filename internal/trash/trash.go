// Package trash deletes directory trees that a backend has moved to a trash directory, at a bounded rate. Any
// number of processes may delete the same trash at once, and each may be killed at any moment.
package trash

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

const (
	batch      = 128 // entries deleted before a rest of the same duration
	deepEnough = 200 // levels; deeper directories are moved to the top first
)

// Options select which entries of a trash directory [Empty] leaves alone, and which it deletes by a function
// of the caller instead of file by file.
type Options struct {
	// Skip reports whether the entry name of the trash stays; nil: none does.
	Skip func(name string) bool
	// Destroy deletes an entry of a directory of the trash by other means, and reports whether it
	// was one to delete so; nil: there is none.
	Destroy func(dir int, name string) (bool, error)
}

// Empty deletes the content of the trash directory path, which need not exist. It follows no symbolic link
// and enters no mount. To leave the disk to others, it sleeps as long as it works. An entry that cannot be
// deleted does not stop it; its error is returned at the end. Errors: those of ctx, *os.PathError.
func Empty(ctx context.Context, path string, o Options) error {
	for {
		names, err := list(path, o)
		if err != nil || len(names) == 0 {
			return err
		}
		done, err := remove(ctx, path, names, o)
		if err != nil || done == 0 { // 0: another process is deleting them
			return err
		}
	}
}

func list(path string, o Options) (names []string, err error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if o.Skip == nil || !o.Skip(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Any reports whether the trash directory path has an entry, so that [Empty] has something to delete.
func Any(path string) bool {
	dir, err := vfs.OpenAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer dir.Close()
	some, _ := dir.Readdirnames(1)
	return len(some) > 0
}

// Delete deletes the entry name of the trash directory path, with its content. Directories deeper than 200
// levels it may move to path instead, where [Empty] finds them.
func Delete(ctx context.Context, path, name string) error {
	_, err := remove(ctx, path, []string{name}, Options{})
	return err
}

// remove deletes the entries called names of the trash directory path, with their content, and returns how
// many files and directories it deleted.
func remove(ctx context.Context, path string, names []string, o Options) (done int, err error) {
	top, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer top.Close()
	d := deleter{ctx: ctx, destroy: o.Destroy, top: int(top.Fd()), since: time.Now()}
	for _, name := range names {
		err = errors.Join(err, d.remove(d.top, name, 0))
		if ctx.Err() != nil {
			return d.done, ctx.Err()
		}
	}
	return d.done, err
}

type deleter struct {
	ctx         context.Context
	destroy     func(dir int, name string) (bool, error)
	top         int
	tries, done int
	since       time.Time
}

// remove deletes name in the directory dir, with all its content. A missing entry is no error: another
// process has deleted it. depth is the number of directories above it in the trash; from 200 on, remove moves
// a directory to the top of the trash instead, which bounds the open files.
func (d *deleter) remove(dir int, name string, depth int) error {
	if err := d.pace(); err != nil {
		return err
	}
	err := unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR && err != unix.EPERM && err != unix.EACCES {
		return d.gone("unlink", name, err)
	}
	if depth == 1 && d.destroy != nil {
		if was, err := d.destroy(dir, name); was {
			return d.gone("destroy", name, err)
		}
	}
	if err := fault.Point(d.ctx, "delete a directory"); err != nil {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err != unix.ENOTEMPTY && err != unix.EEXIST {
		return d.gone("rmdir", name, err)
	}
	f, err := openOwn(dir, name)
	if err != nil {
		return d.gone("open", name, err)
	}
	defer f.Close()
	if depth >= deepEnough {
		err := unix.Renameat(dir, name, d.top, "deeper-"+strconv.FormatUint(rand.Uint64(), 36))
		if err != unix.EXDEV { // a btrfs subvolume inside
			return d.gone("rename", name, err)
		}
	}
	if err := d.clear(f, depth); err != nil {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err == unix.ENOTEMPTY {
		return nil // another process has just moved an entry here
	}
	return d.gone("rmdir", name, err)
}

func (d *deleter) gone(op, name string, err error) error {
	if err == nil {
		d.done++
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}

// clear deletes the content of the open directory dir, which has depth directories above it in the trash.
// Errors: EBUSY for a mount point in it.
func (d *deleter) clear(dir *os.File, depth int) error {
	if st, err := vfs.Lstat(int(dir.Fd()), ""); err != nil || st.MountRoot {
		return errors.Join(err, &os.PathError{Op: "rmdir", Path: dir.Name(), Err: unix.EBUSY})
	}
	entries, err := vfs.Entries(int(dir.Fd()))
	if errors.Is(err, os.ErrNotExist) {
		return nil // deleted while it was open
	}
	for _, e := range entries {
		if err == nil {
			err = d.remove(int(dir.Fd()), e.Name, depth+1)
		}
	}
	return err
}

// openOwn opens the directory name in parent to delete its content; the caller closes it. Before, it gives
// the owner all permissions, because overlayfs itself makes a directory of mode 000.
func openOwn(parent int, name string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o700 != 0o700 {
		if err := unix.Fchmodat(parent, name, 0o700, 0); err != nil {
			return nil, err
		}
	}
	return vfs.OpenDir(parent, name)
}

// pace slows the deletion of a trash directory, to leave the disk to other programs. It is called for each
// deleted entry; after each batch of them it sleeps for as long as the batch took, at most a second. Errors:
// that of the ended context.
func (d *deleter) pace() error {
	if d.tries++; d.tries%batch != 0 {
		return d.ctx.Err()
	}
	select {
	case <-d.ctx.Done():
	case <-time.After(min(time.Since(d.since), time.Second)):
	}
	d.since = time.Now()
	return d.ctx.Err()
}
