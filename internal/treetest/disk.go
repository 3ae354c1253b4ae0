//go:build linux

package treetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/loopdev"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Disk is a filesystem for a test, mounted from an image in memory. Writing to it is fast, and the test can
// simulate a power cut with [Disk.CutPower].
type Disk struct {
	// Dir is the mount point.
	Dir   string
	fs    string
	image *os.File
}

// NewDisk makes and mounts a [Disk] of the type fs: "ext4" of 96 MiB or "btrfs" of 384 MiB. It is unmounted
// when the test ends.
func NewDisk(t testing.TB, fs string) *Disk {
	t.Helper()
	NeedRoot(t)
	NeedFS(t, fs)
	NeedProgram(t, "mkfs."+fs)
	d := &Disk{fs: fs, image: memoryFile(t), Dir: filepath.Join(Dir(t), "disk")}
	t.Cleanup(func() { d.image.Close() })
	args, size := []string{"-q", "-F", "-O", "^resize_inode", "-J", "size=4"}, int64(96<<20)
	if fs == "btrfs" {
		args, size = []string{"-q", "-f"}, 384<<20
	}
	if err := d.image.Truncate(size); err != nil {
		t.Fatal(err)
	}
	args = append(args, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), d.image.Fd()))
	if _, err := run.Output(t.Context(), "mkfs."+fs, args...); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.over(t, d.image))
	return d
}

// memoryFile makes an unnamed file in memory (memfd), which holds the image of a [Disk].
func memoryFile(t testing.TB) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "disk")
}

// over mounts an image at the mount point of a test's disk, on top of the existing mount, to show the disk's
// state after a power cut. down unmounts it.
func (d *Disk) over(t testing.TB, image *os.File) (down func()) {
	t.Helper()
	loop, err := loopdev.Attach(image)
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	if err := unix.Mount(loop.Name(), d.Dir, d.fs, unix.MS_NOATIME, ""); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Unmount(d.Dir, 0); err != nil {
			t.Fatalf("unmount %s: %v", d.Dir, err)
		}
	}
}

// CutPower simulates a power cut. It copies the disk's image as it is now, without data that the kernel has
// not written yet, and mounts the copy at the disk's mount point, where the test sees what would have
// survived. restore unmounts the copy.
func (d *Disk) CutPower(t testing.TB) (restore func()) {
	t.Helper()
	cut := memoryFile(t)
	defer cut.Close() // the mount holds it
	if _, err := vfs.CopyFile(cut, d.image); err != nil {
		t.Fatal(err)
	}
	return d.over(t, cut)
}
