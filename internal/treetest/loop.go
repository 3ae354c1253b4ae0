//go:build linux

package treetest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/loopdev"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"golang.org/x/sys/unix"
)

// Btrfs mounts a fresh btrfs of 2 GiB from a sparse image and returns its mount point. Mount
// options are noatime and the given ones, as "key" or "key=value"; tests of unprivileged
// removal need user_subvol_rm_allowed. Only root may write to its root directory until the
// test changes that.
func Btrfs(t testing.TB, options ...string) string {
	t.Helper()
	return Small(t, "btrfs", 2<<30, options...)
}

// Ext4 mounts a fresh ext4 of size bytes for a test and returns its mount point. Mount options are noatime
// and the given ones, as "key" or "key=value".
func Ext4(t testing.TB, size int64, options ...string) string {
	t.Helper()
	return Small(t, "ext4", size, options...)
}

// Small mounts a fresh filesystem of the type fs ("btrfs", "ext4", "xfs", "tmpfs") and size bytes, with
// options as mount options, for tests that fill it up. Least sizes: btrfs 16 MiB, ext4 1 MiB, xfs 300 MiB.
func Small(t testing.TB, fs string, size int64, options ...string) string {
	t.Helper()
	NeedRoot(t)
	NeedFS(t, fs)
	dir := filepath.Join(Dir(t), fs)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if fs == "tmpfs" {
		options = append(options, "size="+strconv.FormatInt(size, 10), "mode=755")
	} else {
		loop := attach(t, format(t, fs, size))
		defer loop.Close() // the mount holds it from then on
		options = append(options, "source="+loop.Name())
	}
	mountAt(t, fs, dir, options)
	return dir
}

// MountImage mounts the filesystem in the file image, of the type fs, at dir until the test ends. It unlinks
// the image file, whose content then disappears with the mount.
func MountImage(t testing.TB, fs, image, dir string) {
	t.Helper()
	NeedRoot(t)
	NeedFS(t, fs)
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	loop := attach(t, f)
	defer loop.Close() // the mount holds it from then on
	mountAt(t, fs, dir, []string{"source=" + loop.Name()})
}

// images returns the directory in which a test makes a filesystem image of size bytes: one in memory, where
// syncs are fast, if it has that much space, otherwise one on disk.
func images(t testing.TB, size int64) string {
	t.Helper()
	shm, err := mount.FilesystemOf(memory)
	if err == nil && shm.Type == "tmpfs" && shm.Avail > 2*size {
		return memory
	}
	return Dir(t)
}

// format makes a sparse file of size bytes with an empty filesystem of the type fs in it.
func format(t testing.TB, fs string, size int64) *os.File {
	t.Helper()
	reapOnce()
	f, err := os.CreateTemp(images(t, size), mark()+"image")
	if err == nil {
		t.Cleanup(func() { _ = os.Remove(f.Name()) }) // attach removes it; not where mkfs fails
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-q", f.Name()}
	switch {
	case fs == "btrfs" && size < 256<<20:
		args = []string{"-q", "-f", "--mixed", f.Name()}
	case fs == "btrfs", fs == "xfs":
		args = []string{"-q", "-f", f.Name()}
	case fs == "ext4":
		args = []string{"-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", f.Name()}
	}
	NeedProgram(t, "mkfs."+fs)
	if _, err := run.Output(t.Context(), "mkfs."+fs, args...); err != nil {
		t.Fatal(err)
	}
	return f
}

// attach attaches the file image with a test's filesystem to a loop device that the kernel detaches after its
// last user. It unlinks the image, so that even a killed test leaves no file behind.
func attach(t testing.TB, image *os.File) *os.File {
	t.Helper()
	defer image.Close()
	loop, err := loopdev.Attach(image)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EPERM) {
			Skip(t, "loop devices", err.Error())
		}
		t.Fatal(err)
	}
	if err := os.Remove(image.Name()); err != nil {
		t.Fatal(err)
	}
	return loop
}

func mountAt(t testing.TB, fs, dir string, options []string) {
	t.Helper()
	if err := mountOn(fs, dir, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(t, dir) })
}

func mountOn(fs, dir string, options []string) error {
	c, err := mount.Fsopen(fs)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, option := range options {
		key, value, has := strings.Cut(option, "=")
		if has {
			err = c.Set(key, value)
		} else {
			err = c.SetFlag(key)
		}
		if err != nil {
			return err
		}
	}
	mnt, err := c.Mount(unix.MOUNT_ATTR_NOATIME)
	if err != nil {
		return err
	}
	defer mnt.Close()
	return mount.MoveMount(mnt, dir)
}

// unmount unmounts dir, a test's filesystem, and fails the test if the mount is still in use: a file left
// open there is a leak.
func unmount(t testing.TB, dir string) {
	t.Helper()
	// Who serves a tree lets go of the disk that its layers lie on a moment after its
	// last mount has gone.
	err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	for wait := time.Millisecond; err == unix.EBUSY && wait < 2*time.Second; wait *= 2 {
		time.Sleep(wait)
		err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	}
	if err == nil {
		return
	}
	t.Errorf("unmount %s: %v (something still uses it; detached)", dir, err)
	if err := mount.Unmount(dir); err != nil {
		t.Error(err)
	}
}

// UnmountSoon unmounts path. While processes that are ending still use it, UnmountSoon retries for a short
// time.
func UnmountSoon(t testing.TB, path string) {
	t.Helper()
	for wait := time.Millisecond; ; wait *= 2 {
		err := unix.Unmount(path, 0)
		if err == nil {
			return
		}
		if err != unix.EBUSY || wait > 4*time.Second {
			t.Errorf("unmount %s: %v", path, err)
			return
		}
		time.Sleep(wait)
	}
}

// Crowd fills the filesystem mounted at top with one large file until some ten MiB are free, for tests of a
// full disk.
func Crowd(t testing.TB, top string) {
	t.Helper()
	fs, err := mount.FilesystemOf(top)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(top, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, fs.Avail-12<<20); err != nil {
		t.Fatal(err)
	}
}
