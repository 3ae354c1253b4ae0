package promote_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A disk is a filesystem in memory: waiting for it costs nothing, and what it
// would hold after a power cut can be copied.
type disk struct {
	fs    string
	image *os.File
	dir   string // where it is mounted
}

// newDisk makes and mounts one, to be taken down when the test ends.
func newDisk(t *testing.T, fs string) *disk {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedFS(t, fs)
	treetest.NeedProgram(t, "mkfs."+fs)
	d := &disk{fs: fs, image: memory(t), dir: filepath.Join(treetest.Dir(t), "disk")}
	t.Cleanup(func() { d.image.Close() })
	args, size := []string{"-q", "-F", "-O", "^resize_inode", "-J", "size=4", "/dev/fd/3"}, int64(96<<20)
	if fs == "btrfs" {
		args, size = []string{"-q", "-f", "/dev/fd/3"}, 384<<20
	}
	must(t, d.image.Truncate(size))
	mkfs := exec.Command("mkfs."+fs, args...)
	mkfs.ExtraFiles = []*os.File{d.image}
	if out, err := mkfs.CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v\n%s", fs, err, out)
	}
	must(t, os.Mkdir(d.dir, 0o755))
	t.Cleanup(d.over(t, d.image))
	return d
}

// memory makes a file that has no name.
func memory(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC)
	must(t, err)
	return os.NewFile(uintptr(fd), "disk")
}

// over mounts an image where the disk is, or over it; the answer takes it down
// again.
func (d *disk) over(t *testing.T, image *os.File) (down func()) {
	t.Helper()
	loop, err := kernel.AttachLoop(image)
	must(t, err)
	defer loop.Close()
	must(t, unix.Mount(loop.Name(), d.dir, d.fs, unix.MS_NOATIME, ""))
	return func() {
		if err := unix.Unmount(d.dir, 0); err != nil {
			t.Fatalf("unmount %s: %v", d.dir, err)
		}
	}
}

// cutPower mounts, over the disk, what it would hold had the power gone this
// instant: what was never written to it is lost. The answer brings the disk back.
func (d *disk) cutPower(t *testing.T) (restore func()) {
	t.Helper()
	cut := memory(t)
	defer cut.Close() // the mount holds it
	_, err := kernel.CopyFile(cut, d.image)
	must(t, err)
	return d.over(t, cut)
}
