//go:build linux

package fusecow_test

import (
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/servetest"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// A process that has one of the two mounts of a served tree gets the other, though another process drops its
// mounts meanwhile: as when a command starts while the container of the last one ends. Cost: 1 s.
func TestATreeIsServedInBothMountsWhileOthersLeaveIt(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	trees := fusecow.NewTrees(treetest.Dir(t), servetest.Program)
	both := trees.Serve(treetest.Dir(t), time.Now(), "one-f1")
	mount := func(s snapshot.Served) int {
		t.Helper()
		fd, err := s.Mount(t.Context(), true) // after a failure the mounts end with this process
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	unmount := func(fd int) {
		t.Helper()
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		first := [2]int{mount(both[0]), mount(both[1])}
		next := mount(both[0])
		unmount(first[1]) // the last mount of that view but for what is reserved
		last := mount(both[1])
		unmount(first[0])
		unmount(next)
		unmount(last)
	}
	trees.WaitExit(t.Context(), "one-f1")
}
