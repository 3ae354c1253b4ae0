//go:build linux

package overlay_test

import (
	"errors"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

func TestConformance(t *testing.T) {
	treetest.NeedRoot(t)
	snapshottest.Run(t, byRoot())
}

func byRoot() snapshottest.Subject {
	return snapshottest.Subject{
		Name:   "overlay (root)",
		Driver: overlay.Driver,
		Reach:  reach,
		Place:  snapshottest.OnDisk,
		Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Ext4(t, 64<<20)) },
	}
}

func TestConformanceOfAnOrdinaryUser(t *testing.T) {
	treetest.OncePerRace(t)
	whole := treetest.Long(t)
	if !treetest.AsUser(t) || !treetest.InNamespace(t) {
		return
	}
	snapshottest.Run(t, snapshottest.Subject{
		Name:        "overlay (user)",
		Driver:      overlay.Driver,
		StorageOnly: !whole,
		Reach:       reach,
		Place:       snapshottest.OnDisk,
		Small:       func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Tmpfs(t, "32m")) },
	})
}

// reach opens the root of a view, mounted as the product mounts it, except for the option volatile,
// after which only the engine can mount the fork again.
func reach(t testing.TB, v snapshot.View) *os.File {
	t.Helper()
	path := v.Path
	if o := v.Overlay; o != nil {
		mnt, err := mount.NewOverlay(options(o))
		if errors.Is(err, mount.ErrEndedReadOnly) { // no space for the work directory
			full := options(o)
			full.Lower, full.Upper, full.Work = append([]string{o.Upper}, o.Lower...), "", ""
			mnt, err = mount.NewOverlay(full)
		}
		must(t, err)
		defer mnt.Close()
		path = vfs.FDPath(mnt)
	}
	f, err := os.Open(path)
	must(t, err)
	return f
}

func options(o *snapshot.Overlay) mount.Overlay {
	return mount.Overlay{
		Lower: o.Lower, Upper: o.Upper, Work: o.Work, UserXattr: o.UserXattr, Nested: o.Nested,
		RedirectDir: !o.UserXattr, Metacopy: o.Metacopy, NoIndex: true,
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
