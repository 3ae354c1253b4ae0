package promote_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A disk is a filesystem in a file that lies in memory: waiting for it costs
// nothing, and what it would hold after a power cut can be copied.
type disk struct {
	fs    string
	top   string // holds the images
	image string
	dir   string // where it is mounted
}

// newDisk makes and mounts one, to be taken down when the test ends.
func newDisk(t *testing.T, fs string) *disk {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "mkfs."+fs)
	d := &disk{fs: fs, top: treetest.Small(t, "tmpfs", 2<<30)}
	d.image = filepath.Join(d.top, "image")
	args, size := []string{"-q", "-F", "-O", "^resize_inode", "-J", "size=4", d.image}, int64(96<<20)
	if fs == "btrfs" {
		args, size = []string{"-q", "-f", d.image}, 384<<20
	}
	must(t, os.WriteFile(d.image, nil, 0o600))
	must(t, os.Truncate(d.image, size))
	if out, err := exec.Command("mkfs."+fs, args...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v\n%s", fs, err, out)
	}
	d.dir = d.mount(t, d.image, "disk")
	return d
}

// mount mounts an image beneath the disk's top, until the test ends.
func (d *disk) mount(t *testing.T, image, name string) string {
	t.Helper()
	dir := filepath.Join(d.top, name)
	must(t, os.MkdirAll(dir, 0o755))
	t.Cleanup(d.over(t, image, dir))
	return dir
}

// over mounts an image over a directory; the answer takes it down again and
// waits until the image is let go.
func (d *disk) over(t *testing.T, image, dir string) (down func()) {
	t.Helper()
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	loop, err := kernel.AttachLoop(f)
	must(t, err)
	defer loop.Close()
	must(t, unix.Mount(loop.Name(), dir, d.fs, unix.MS_NOATIME, ""))
	return func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatalf("unmount %s: %v", dir, err)
		}
		held := "/sys/block/" + filepath.Base(loop.Name()) + "/loop/backing_file"
		for range 1000 {
			if now, err := os.ReadFile(held); err != nil || !strings.Contains(string(now), image) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("%s is still a loop device", image)
	}
}

// cutPower mounts, over the disk, what it would hold had the power gone this
// instant: what was never written to it is lost. The answer brings the disk back.
func (d *disk) cutPower(t *testing.T) (restore func()) {
	t.Helper()
	cut := d.image + ".cut"
	if out, err := exec.Command("cp", "--sparse=always", d.image, cut).CombinedOutput(); err != nil {
		t.Fatalf("copying the image: %v %s", err, out)
	}
	down := d.over(t, cut, d.dir)
	return func() {
		down()
		must(t, os.Remove(cut))
	}
}
