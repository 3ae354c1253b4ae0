package mount_test

import (
	"errors"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

func TestAMountIsNoticedOnce(t *testing.T) {
	treetest.NeedRoot(t)
	done := make(chan struct{})
	go onOtherThread(func() { // in a namespace where nobody else mounts
		defer close(done)
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		if err != nil {
			t.Error(err)
			return
		}
		w, err := mount.NewWatch()
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		dir := t.TempDir()
		for _, step := range []struct {
			what    string
			do      func() error
			changed bool
		}{
			{"nothing", func() error { return nil }, false},
			{"a mount", func() error { return unix.Mount("t", dir, "tmpfs", 0, "") }, true},
			{"nothing since", func() error { return nil }, false},
			{"two at once", func() error {
				if err := unix.Unmount(dir, 0); err != nil {
					return err
				}
				return unix.Mount("t", dir, "tmpfs", 0, "")
			}, true},
			{"an unmount", func() error { return unix.Unmount(dir, 0) }, true},
			{"nothing after all", func() error { return nil }, false},
		} {
			if err := step.do(); err != nil {
				t.Errorf("%s: %v", step.what, err)
			}
			if got := w.Changed(); got != step.changed {
				t.Errorf("%s: changed: %v", step.what, got)
			}
		}
	})
	<-done
}
