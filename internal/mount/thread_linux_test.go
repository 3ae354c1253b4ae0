package mount_test

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// TestAThreadListsItsOwnMounts holds also for a thread that has unshared its mount namespace. Any other thread reads
// no file in /proc of its own.
func TestAThreadListsItsOwnMounts(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Dir(t)
	has := func() bool {
		list, err := mount.List()
		if err != nil {
			t.Error(err)
		}
		return slices.ContainsFunc(list, func(p mount.Point) bool { return p.Path == dir })
	}
	mounted, seen := make(chan bool), make(chan bool)
	go onOtherThread(func() {
		defer close(mounted)
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("own", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Error(err)
			return
		}
		if got := mount.OwnProc("mounts"); got != "/proc/thread-self/mounts" {
			t.Errorf("a thread with mounts of its own reads %s", got)
		}
		if !has() {
			t.Error("a thread with mounts of its own lists those of others")
		}
		mounted <- true
		<-seen
	})
	<-mounted
	for range 4 * runtime.NumCPU() { // on several threads
		if got := mount.OwnProc("mounts"); got != "/proc/self/mounts" {
			t.Errorf("a thread without mounts of its own reads %s", got)
		}
		if has() {
			t.Error("a mount of another thread's mount namespace is listed")
		}
		runtime.Gosched()
	}
	close(seen)
	<-mounted
}

// onOtherThread runs f on a thread that is not the first of this process, whose files are those in /proc/self, and
// that ends with f.
func onOtherThread(f func()) {
	runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	done := make(chan bool)
	go func() { // on another thread, for this one is not free
		defer close(done)
		onOtherThread(f)
	}()
	<-done
	runtime.UnlockOSThread()
}
