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
	newborn = "new-"      // what bear is making, in the trash
	infancy = time.Minute // how long it is left alone
	batch   = 512         // names removed between two rests
)

// Sweep clears the trash. It rests as long as it works, so that it takes at
// most half of what the disk can do from others. What cannot be removed does
// not keep the rest from going; it is the error at the end.
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

// clear removes names of the trash with all that is in them. A directory in
// one of them is not descended into but moved up beside it, so that a tree of
// any depth needs three descriptors, and a sweep that is killed loses nothing.
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

// empty removes one directory of the trash, and answers with the directories
// that were in it, which are in the trash now.
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
			up := fresh("deeper-")
			if err = s.lift(dir, child, up); err == nil {
				more = append(more, up)
			}
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return more, err
		}
	}
	return more, unix.Unlinkat(s.trash, name, unix.AT_REMOVEDIR)
}

// open opens a directory that must become readable and writable for that.
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

// lift moves a directory up into the trash. Its ".." changes, for which an
// ordinary user needs the right to write in it. A btrfs subvolume that a
// sandbox made keeps what is in it from being moved out: that is removed there.
func (s *sweeper) lift(dir int, child, up string) error {
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
