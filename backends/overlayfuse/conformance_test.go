//go:build linux

package overlayfuse_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/servetest"
	"github.com/snapfs/snapfs/backends/overlayfuse"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// TestMain makes the test binary its own server of trees.
func TestMain(m *testing.M) { servetest.Main(m) }

func driver() snapshot.Driver {
	return servetest.Driver(overlayfuse.Driver)
}

func TestConformance(t *testing.T) {
	if testing.Short() { // the racy parts are overlay's and fusecow's, tested there
		return
	}
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	snapshottest.Run(t, snapshottest.Subject{
		Name:   "fusecow-overlay (root)",
		Driver: driver(),
		Reach:  reach,
		Place:  snapshottest.OnDisk,
		Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Ext4(t, 64<<20)) },
	})
}

// TestConformanceOfAnOrdinaryUser runs in make test-long alone. In make test the backends overlay and fusecow, of
// which this one is made, each run as an ordinary user.
func TestConformanceOfAnOrdinaryUser(t *testing.T) {
	if !treetest.Long(t) {
		return
	}
	treetest.NeedDevice(t, "/dev/fuse")
	if os.Geteuid() == 0 {
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
		return
	}
	treetest.OncePerRun(t)
	if !treetest.InNamespace(t) {
		return
	}
	snapshottest.Run(t, snapshottest.Subject{
		Name:   "fusecow-overlay (user)",
		Driver: driver(),
		Reach:  reach,
		Place:  snapshottest.OnDisk,
		Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Tmpfs(t, "32m")) },
	})
}

// reach opens the root of a view, mounted as snapfs does, but not volatile, which would need the engine to be
// mounted again.
func reach(t testing.TB, v snapshot.View) *os.File {
	t.Helper()
	o := v.Overlay
	if o == nil {
		return treetest.Open(t, v.Path)
	}
	lower := slices.Clone(o.Lower)
	var base []*os.File
	for _, s := range o.Base {
		fd, err := s.Mount(t.Context(), true)
		must(t, err)
		m := os.NewFile(uintptr(fd), "base")
		defer m.Close()
		base, lower = append(base, m), append(lower, vfs.FDPath(m))
	}
	options := mount.Overlay{
		Lower: lower, Upper: o.Upper, Work: o.Work, UserXattr: o.UserXattr,
		RedirectDir: !o.UserXattr, Metacopy: o.Metacopy, NoIndex: true,
	}
	m, err := mount.NewOverlay(options)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.15 a layer must have a path
		for _, m := range base {
			place := treetest.Dir(t)
			must(t, mount.MoveMount(m, place))
			defer func() { must(t, unix.Unmount(place, unix.MNT_DETACH)) }()
		}
		m, err = mount.NewOverlay(options)
	}
	if errors.Is(err, mount.ErrEndedReadOnly) { // no space for the work directory
		options.Lower, options.Upper, options.Work = append([]string{o.Upper}, options.Lower...), "", ""
		m, err = mount.NewOverlay(options)
	}
	must(t, err)
	defer m.Close()
	f, err := os.Open(vfs.FDPath(m))
	must(t, err)
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
