//go:build linux

package treetest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/run"
	"golang.org/x/sys/unix"
)

// Projects mounts a fresh filesystem of the type fs ("ext4", "xfs") and size bytes with project quotas until
// the test ends, and returns its mount point. counts is false, and nothing is mounted, if this kernel was
// built without project quotas; then the test should check that snapfs reports that.
func Projects(t testing.TB, fs string, size int64) (dir string, counts bool) {
	t.Helper()
	NeedRoot(t)
	NeedFS(t, fs)
	dir = filepath.Join(Dir(t), fs)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	image := format(t, fs, size)
	if fs == "ext4" {
		if _, err := run.Output(t.Context(), "mkfs.ext4", "-q", "-F", "-O", "project,quota", "-E", "quotatype=prjquota", image.Name()); err != nil {
			t.Fatal(err)
		}
	}
	loop := attach(t, image)
	defer loop.Close() // the mount holds it from then on
	err := mountOn(fs, dir, []string{"source=" + loop.Name(), "prjquota"})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH) {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if on, err := projquota.Enabled(int(f.Fd())); err != nil || !on {
		t.Fatalf("projects on %s: %v, %v", fs, on, err)
	}
	return dir, true
}
