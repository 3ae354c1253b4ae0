//go:build linux

package treetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// This file carries steps out, with calls relative to the directory that holds
// the node, so that paths may be of any length.

// An at names a file by the open directory that holds it and the name in it, so that a path of any length can
// be used.
type at struct {
	dir  *os.File
	name string
}

func (a at) fd() int { return int(a.dir.Fd()) }

// locate opens the directory inside root that holds path, and returns it with the last element of path. The
// caller closes the directory.
func locate(root *os.File, path string) (at, error) {
	parent, name := ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	dir, err := vfs.OpenBeneath(int(root.Fd()), parent, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	return at{dir, name}, err
}

func (s Step) play(root *os.File) error {
	a, err := locate(root, s.Path)
	if err != nil {
		return err
	}
	defer a.dir.Close()
	switch s.Op {
	case Rename, Exchange, Link:
		return s.playNames(root, a)
	case Unlink, Rmdir, RemoveRF:
		if err := s.playRemove(a); err != nil {
			return err
		}
		return s.stamp(a.fd(), ".")
	case Create, Write, Append, Truncate, Mmap, Punch:
		err = s.playContent(a)
	case Mkdir, Symlink, Fifo, Socket, Device:
		err = s.playNew(a)
	default:
		err = s.playMeta(a)
	}
	if err != nil {
		return err
	}
	return errors.Join(s.stamp(a.fd(), a.name), s.stamp(a.fd(), "."))
}

// stamp sets the access and modification times of the file name in dirfd to the time of the script's step, so
// that a random script always gives the same tree.
func (s Step) stamp(dirfd int, name string) error {
	ts := []unix.Timespec{{Sec: s.Time}, {Sec: s.Time, Nsec: s.Time % 1000 * 1000}}
	if err := unix.UtimesNanoAt(dirfd, name, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("times: %w", err)
	}
	return nil
}

func (s Step) playNames(root *os.File, from at) error {
	to, err := locate(root, s.To)
	if err != nil {
		return err
	}
	defer to.dir.Close()
	switch s.Op {
	case Rename:
		err = unix.Renameat2(from.fd(), from.name, to.fd(), to.name, 0)
	case Exchange:
		err = unix.Renameat2(from.fd(), from.name, to.fd(), to.name, unix.RENAME_EXCHANGE)
	case Link:
		err = unix.Linkat(from.fd(), from.name, to.fd(), to.name, 0)
	}
	if err != nil {
		return err
	}
	return errors.Join(s.stamp(from.fd(), "."), s.stamp(to.fd(), "."))
}

func (s Step) playRemove(a at) error {
	switch s.Op {
	case Unlink:
		return unix.Unlinkat(a.fd(), a.name, 0)
	case Rmdir:
		return unix.Unlinkat(a.fd(), a.name, unix.AT_REMOVEDIR)
	}
	return removeAll(a)
}

func removeAll(a at) error {
	dir, err := vfs.OpenDir(a.fd(), a.name)
	if err != nil {
		return err
	}
	defer dir.Close()
	list, err := vfs.Entries(int(dir.Fd()))
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Type == unix.DT_DIR {
			err = removeAll(at{dir, e.Name})
		} else {
			err = unix.Unlinkat(int(dir.Fd()), e.Name, 0)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", e.Name, err)
		}
	}
	return unix.Unlinkat(a.fd(), a.name, unix.AT_REMOVEDIR)
}

func (s Step) playNew(a at) error {
	switch s.Op {
	case Mkdir:
		return unix.Mkdirat(a.fd(), a.name, s.Mode)
	case Symlink:
		return unix.Symlinkat(s.To, a.fd(), a.name)
	case Fifo:
		return unix.Mknodat(a.fd(), a.name, unix.S_IFIFO|s.Mode, 0)
	case Socket:
		return unix.Mknodat(a.fd(), a.name, unix.S_IFSOCK|s.Mode, 0)
	}
	return unix.Mknodat(a.fd(), a.name, s.Mode, int(s.Dev))
}

func (s Step) playContent(a at) error {
	flags := unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	switch s.Op {
	case Create:
		flags |= unix.O_CREAT | unix.O_EXCL
	case Append:
		flags |= unix.O_APPEND
	}
	fd, err := unix.Openat(a.fd(), a.name, flags, s.Mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), a.name)
	defer f.Close()
	switch s.Op {
	case Create, Append:
		_, err = f.Write(random(s.Seed, s.Size))
	case Write:
		_, err = f.WriteAt(random(s.Seed, s.Size), s.Off)
	case Truncate:
		err = f.Truncate(s.Size)
	case Punch:
		err = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, s.Off, s.Size)
	case Mmap:
		err = s.playMmap(fd)
	}
	return err
}

func (s Step) playMmap(fd int) error {
	page := s.Off &^ int64(os.Getpagesize()-1)
	m, err := unix.Mmap(fd, page, int(s.Off-page+s.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	// A page that this process has to answer for itself must not be waited for by a
	// thread that runs: fetching it is left to a system call (Linux 5.14).
	_ = unix.Madvise(m, unix.MADV_POPULATE_WRITE)
	copy(m[s.Off-page:], random(s.Seed, s.Size))
	// Without the sync the kernel may set the modification time later.
	return errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m))
}

func (s Step) playMeta(a at) error {
	switch s.Op {
	case Chmod:
		return unix.Fchmodat(a.fd(), a.name, s.Mode, 0)
	case Chown:
		return unix.Fchownat(a.fd(), a.name, s.UID, s.GID, unix.AT_SYMLINK_NOFOLLOW)
	case Setxattr:
		return vfs.SetXattr(a.fd(), a.name, s.Attr, s.Value, 0)
	case Delxattr:
		return vfs.RemoveXattr(a.fd(), a.name, s.Attr)
	}
	return nil // Utimes: the stamp does it
}

// random returns n pseudo-random bytes, the same for the same seed, as the content of a file. For a third of
// the seeds all bytes are zero, as in a file with a hole.
func random(seed uint64, n int64) []byte {
	b := make([]byte, n)
	if seed%3 == 0 {
		return b
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i+8 <= len(b); i += 8 {
		v := r.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	for i := len(b) &^ 7; i < len(b); i++ {
		b[i] = byte(seed)
	}
	return b
}
