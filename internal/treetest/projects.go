//go:build linux

package treetest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

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

// LimitedProjects returns the ids from first to below end of the projects that have a limit on the filesystem of dir.
func LimitedProjects(t testing.TB, dir string, first, end uint32) (ids []uint32) {
	t.Helper()
	f := Open(t, dir)
	const nextQuota, ofProject = 0x800009, 2 // Q_GETNEXTQUOTA and PRJQUOTA of linux/quota.h
	for id := first; id < end; id++ {
		var q struct { // if_nextdqblk
			bytesLimit, _, _, inodesLimit, _, _, _, _ uint64
			_, id                                     uint32
		}
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), nextQuota<<8|ofProject, uintptr(id), uintptr(unsafe.Pointer(&q)), 0, 0)
		if id = q.id; errno == unix.ENOENT || errno == unix.ESRCH || id >= end {
			return ids
		}
		if errno != 0 {
			t.Fatal(errno)
		}
		if q.bytesLimit+q.inodesLimit > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
