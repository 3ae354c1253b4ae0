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

// Btrfs mounts a fresh btrfs of 2 GiB (sparse, so next to nothing is taken) and
// answers with its root. It is mounted noatime and with the options given, as
// "key" or "key=value"; user_subvol_rm_allowed is one that matters. Root may
// write to it; chmod or chown it as the test needs.
func Btrfs(t testing.TB, options ...string) string {
	t.Helper()
	return Small(t, "btrfs", 2<<30, options...)
}

// Ext4 mounts a fresh ext4 of size bytes, like Btrfs.
func Ext4(t testing.TB, size int64, options ...string) string {
	t.Helper()
	return Small(t, "ext4", size, options...)
}

// Small mounts a fresh filesystem of the type fs ("btrfs", "ext4", "xfs",
// "tmpfs") and size bytes, to be filled up. Least sizes: btrfs 16 MiB, ext4 1
// MiB, xfs 300 MiB.
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

// MountImage mounts a filesystem image, as it is, at dir until the test ends. The
// image file is removed.
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

// images is where the images of filesystems lie: in memory, where what a test
// syncs does not wait for the disk and all who use it, if there is room for
// this one and some more; otherwise on the disk.
func images(t testing.TB, size int64) string {
	t.Helper()
	shm, err := mount.FilesystemOf(memory)
	if err == nil && shm.Type == "tmpfs" && shm.Avail > 2*size {
		return memory
	}
	return Dir(t)
}

// format makes a sparse file with an empty filesystem in it.
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

// attach makes image a block device that goes away with its last user. The
// image loses its name, so that even a killed test leaves no file behind.
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
	return mount.MoveMount(mnt, unix.AT_FDCWD, dir)
}

// unmount takes the mount at dir away and complains when something still uses
// it: a test that leaves a file open there has a leak.
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

// UnmountSoon waits for what lets go of a mount a moment after it was closed.
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

// Crowd leaves some ten MiB of the filesystem that is mounted at top.
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
