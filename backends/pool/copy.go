//go:build linux

package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// patience is how often at most a file that changes during each copy is copied; the import then reports it as
// unsettled. The same bound holds for the last copy of a whole workspace that is moved onto or off the pool,
// which then fails with ErrBusy.
const patience = 3

// file updates the pool's copy of the entry name of l, which is not a directory, and returns the inode data
// to record in the manifest, the list of the workspace's files at the last import. same is set if the
// manifest shows that the entry has not changed since.
func (s *syncer) file(ctx context.Context, l *level, name string, st *vfs.Stat, same bool) (inode, error) {
	s.note(func(r *Report) { r.Seen++ })
	if st.Nlink > 1 {
		s.mu.Lock()
		if same {
			s.linked[st.Ino] = filepath.Join(l.path, name)
		} else {
			s.later = append(s.later, laterLink{l.path, name, *st})
		}
		s.mu.Unlock()
		return inodeOf(st), nil
	}
	if same {
		return inodeOf(st), nil
	}
	s.markChanged(l.path)
	dst, err := l.dst()
	if err != nil {
		return inode{}, err
	}
	return s.copyStable(ctx, int(l.src.Fd()), dst, l.path, name, st)
}

// copyStable copies the file name from the directory src to dst, and again if it changed meanwhile, three
// times at most. dir is the path of src in the workspace, for reports. It returns the inode data to record
// for the file, or zeros if the next import should copy the file again.
func (s *syncer) copyStable(ctx context.Context, src, dst int, dir, name string, st *vfs.Stat) (inode, error) {
	for try := 1; ; try++ {
		n, err := s.copyOnce(ctx, src, dst, dir, name, st)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) && gone(src, name) {
				return inode{}, removeAll(dst, name)
			}
			return inode{}, err
		}
		after, err := vfs.Lstat(src, name)
		if errors.Is(err, os.ErrNotExist) {
			return inode{}, nil // the next import deletes the copy
		}
		if err != nil {
			return inode{}, err
		}
		if inodeOf(&after) == inodeOf(st) {
			s.note(func(r *Report) { r.Copied++; r.Bytes += snapshot.Bytes(n) })
			return inodeOf(st), nil
		}
		if try == patience {
			s.note(func(r *Report) { r.Copied++; r.Unsettled = append(r.Unsettled, filepath.Join(dir, name)) })
			return inode{}, nil
		}
		*st = after
	}
}

func gone(dir int, name string) bool {
	_, err := vfs.Lstat(dir, name)
	return errors.Is(err, os.ErrNotExist)
}

// copyOnce copies the file name from the directory src, whose path is dir, to dst, under a temporary name
// that it renames over the old copy. It returns the bytes copied.
func (s *syncer) copyOnce(ctx context.Context, src, dst int, dir, name string, st *vfs.Stat) (int64, error) {
	if err := s.checkSpace(st.Size); err != nil {
		return 0, err
	}
	if err := s.change(ctx, "copy a file"); err != nil {
		return 0, err
	}
	tmp := incomplete + proc.Name() + "." + key(filepath.Join(dir, name))
	n, err := copyNode(src, name, dst, tmp, st)
	if err == nil {
		err = attributes(src, name, dst, tmp, st)
	}
	if err == nil {
		err = unix.Renameat(dst, tmp, dst, name)
		if err == unix.EISDIR || err == unix.EEXIST || err == unix.ENOTEMPTY {
			if err = removeAll(dst, name); err == nil {
				err = unix.Renameat(dst, tmp, dst, name)
			}
		}
	}
	if err != nil {
		_ = unix.Unlinkat(dst, tmp, 0) // otherwise the next import deletes it
		return 0, located("copy", filepath.Join(dir, name), err)
	}
	return n, nil
}

func located(op, path string, err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// copyNode creates the file to in the directory dst with the type and content of name in src, without
// attributes. It returns the bytes copied.
func copyNode(src int, name string, dst int, to string, st *vfs.Stat) (int64, error) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return copyContent(src, name, dst, to)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(src, name, buf)
		if err != nil {
			return 0, err
		}
		return int64(n), unix.Symlinkat(string(buf[:n]), dst, to)
	case unix.S_IFDIR:
		return 0, unix.ESTALE // it became a directory: the next try fails, the next import succeeds
	}
	return 0, unix.Mknodat(dst, to, st.Mode&unix.S_IFMT|0o600, int(st.Rdev))
}

func copyContent(src int, name string, dst int, to string) (int64, error) {
	in, err := vfs.OpenBeneath(src, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := vfs.OpenBeneath(dst, to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	if _, err := vfs.CopyFile(out, in); err != nil {
		return 0, err
	}
	return out.Seek(0, 2)
}

// attributes sets owner, mode, extended attributes and times of the file to in the directory dst to those of
// name in src, in an order in which none undoes another.
func attributes(src int, name string, dst int, to string, st *vfs.Stat) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if to == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Fchownat(dst, to, int(st.UID), int(st.GID), flags); err != nil {
		return err
	}
	if !st.IsSymlink() {
		if err := chmod(dst, to, st.Mode&0o7777); err != nil {
			return err
		}
	}
	if err := xattrs(src, name, dst, to); err != nil {
		return err
	}
	ts := []unix.Timespec{
		{Sec: st.ATime.Sec, Nsec: int64(st.ATime.Nsec)},
		{Sec: st.MTime.Sec, Nsec: int64(st.MTime.Nsec)},
	}
	return unix.UtimesNanoAt(dst, to, ts, flags)
}

func chmod(dir int, name string, mode uint32) error {
	if name == "" {
		return unix.Fchmod(dir, mode)
	}
	return unix.Fchmodat(dir, name, mode, 0)
}

func xattrs(src int, name string, dst int, to string) error {
	want, err := vfs.Xattrs(src, name)
	if err != nil {
		return err
	}
	have, err := vfs.Xattrs(dst, to)
	if err != nil {
		return err
	}
	for attr := range have {
		if _, keep := want[attr]; !keep {
			if err := vfs.RemoveXattr(dst, to, attr); err != nil {
				return err
			}
		}
	}
	for attr, value := range want {
		if was, ok := have[attr]; ok && was == value {
			continue
		}
		if err := vfs.SetXattr(dst, to, attr, []byte(value), 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return nil
}

// links makes those names of the copy that are hard links, after all other files are copied: the first name
// is a copy, unless the copy has the file already, and the others are links to it.
func (s *syncer) links(ctx context.Context) error {
	for _, l := range s.later {
		if err := s.link(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func (s *syncer) link(ctx context.Context, l laterLink) error {
	dst, err := vfs.OpenBeneath(int(s.dst.Fd()), l.dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dst.Close()
	s.markChanged(l.dir)
	first, ok := s.linked[l.st.Ino]
	if ok {
		return s.linkTo(ctx, first, int(dst.Fd()), l)
	}
	src, err := vfs.OpenBeneath(int(s.src.Fd()), l.dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the next import finds it deleted
	}
	if err != nil {
		return err
	}
	defer src.Close()
	n, err := s.copyStable(ctx, int(src.Fd()), int(dst.Fd()), l.dir, l.name, &l.st)
	if err == nil && n.ino == l.st.Ino {
		s.linked[l.st.Ino] = filepath.Join(l.dir, l.name)
	}
	return err
}

func (s *syncer) linkTo(ctx context.Context, first string, dst int, l laterLink) error {
	if err := s.change(ctx, "link a file"); err != nil {
		return err
	}
	f, err := vfs.OpenBeneath(int(s.dst.Fd()), first, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := removeAll(dst, l.name); err != nil {
		return err
	}
	if err := unix.Linkat(int(f.Fd()), "", dst, l.name, unix.AT_EMPTY_PATH); err != nil {
		return located("link", filepath.Join(l.dir, l.name), err)
	}
	s.note(func(r *Report) { r.Copied++ })
	return nil
}
