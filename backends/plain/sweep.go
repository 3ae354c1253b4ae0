package plain

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const (
	newborn = "new-"      // a new entry in the trash
	infancy = time.Minute // a new entry of this age is not swept
	batch   = 512         // entries removed between two rests
)

// Sweep implements [snapshot.Sweeper]: it deletes the trash. It rests for as long as it works,
// so that it uses at most half of the disk's time. It continues after an entry that cannot be
// deleted, and returns the error at the end.
func (b *backend) Sweep(ctx context.Context) error {
	entries, err := os.ReadDir(b.trash())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fail("sweeping", "", err)
	}
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || strings.HasPrefix(e.Name(), newborn) && time.Since(info.ModTime()) < infancy {
			continue
		}
		names = append(names, e.Name())
	}
	return fail("sweeping", "", b.clear(ctx, names))
}

// Pending implements [snapshot.Sweeper]. It always returns true, because every removal leaves
// a tree in the trash.
func (b *backend) Pending() bool { return true }

// clear deletes entries of the trash with their content. It moves nested directories up into
// the trash instead of descending into them, so that a tree of any depth needs three
// descriptors, and nothing is lost if the process is killed.
func (b *backend) clear(ctx context.Context, names []string) error {
	trash, err := unix.Open(b.trash(), vfs.OPath|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: b.trash(), Err: err}
	}
	defer unix.Close(trash)
	s := &sweeper{ctx: ctx, trash: trash, since: time.Now()}
	for len(names) > 0 {
		last := names[len(names)-1]
		names = names[:len(names)-1]
		more, err := s.empty(last)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			s.err = &fs.PathError{Op: "remove", Path: filepath.Join(b.trash(), last), Err: err}
		}
		names = append(names, more...)
	}
	return s.err
}

type sweeper struct {
	ctx   context.Context
	trash int
	done  int
	since time.Time
	err   error
}

// empty deletes one directory of the trash. It moves the directories in it into the trash, and
// returns their names.
func (s *sweeper) empty(name string) (more []string, err error) {
	if err := fault.Point(s.ctx, "sweep a directory"); err != nil {
		return nil, err
	}
	dir, err := s.open(s.trash, name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, unix.Unlinkat(s.trash, name, 0)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	entries, err := vfs.Entries(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		child := e.Name
		if err := s.rest(); err != nil {
			return more, err
		}
		err := unix.Unlinkat(dir, child, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			up := uniqueName("deeper-")
			if err = s.moveUp(dir, child, up); err == nil {
				more = append(more, up)
			}
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return more, err
		}
	}
	return more, unix.Unlinkat(s.trash, name, unix.AT_REMOVEDIR)
}

// open gives the owner of a directory all permissions and opens it.
func (s *sweeper) open(at int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o700 != 0o700 {
		if err := unix.Fchmodat(at, name, 0o700, 0); err != nil {
			return -1, err
		}
	}
	return unix.Openat(at, name, flags, 0)
}

// moveUp moves a directory up into the trash. That changes its "..", for which an ordinary user needs
// write permission in it. The content of a btrfs subvolume cannot be moved out of it, and is
// deleted in place.
func (s *sweeper) moveUp(dir int, child, up string) error {
	fd, err := s.open(dir, child)
	if err != nil {
		return err
	}
	unix.Close(fd)
	err = unix.Renameat(dir, child, s.trash, up)
	if errors.Is(err, unix.EXDEV) {
		if err := os.RemoveAll(vfs.PathTo(dir) + "/" + child); err != nil {
			return err
		}
		return unix.ENOENT
	}
	return err
}

// rest pauses after each batch for as long as the batch took.
func (s *sweeper) rest() error {
	if s.done++; s.done%batch != 0 {
		return s.ctx.Err()
	}
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(min(time.Since(s.since), time.Second)):
	}
	s.since = time.Now()
	return nil
}
