//go:build linux

package overlay_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Directories that the kernel would not mount are refused with a reason.
func TestOpenGivesTheReasonOfARefusal(t *testing.T) {
	treetest.NeedRoot(t)
	place, tmpfs := snapshottest.OnDisk(t), treetest.Small(t, "tmpfs", 1<<20)
	file := place.Tree.Path + "/file"
	must(t, os.WriteFile(file, nil, 0o644))
	view := filepath.Join(treetest.Dir(t), "overlay")
	must(t, os.Mkdir(view, 0o755))
	overlayAt(t, mount.Overlay{Lower: []string{place.Tree.Path}, Upper: treetest.Dir(t), Work: treetest.Dir(t)}, view)
	third := filepath.Join(treetest.Dir(t), "overlay2")
	must(t, os.Mkdir(third, 0o755))
	overlayAt(t, mount.Overlay{Lower: []string{view, tmpfs}}, third)
	named := filepath.Join(treetest.Dir(t), "overlay2")
	must(t, os.Mkdir(named, 0o755))
	layer, err := os.Open(view) // by a path that does not exist later
	must(t, err)
	overlayAt(t, mount.Overlay{Lower: []string{vfs.FDPath(layer), tmpfs}}, named)
	must(t, layer.Close())
	for _, c := range []struct {
		tree, dir, why string
		kind           error
	}{
		{"/proc", place.Dir, "virtual filesystem", errs.ErrNotSupported},
		{file, place.Dir, "not a directory", errs.ErrNotSupported},
		{file + "no", place.Dir, "no such file", errs.ErrNotFound},
		{place.Tree.Path, view + "/state", "itself on an overlay", errs.ErrNotSupported},
		{place.Tree.Path, "/sys/state", "as an upper", errs.ErrNotSupported},
		{third, place.Dir, "no more than two", errs.ErrNotSupported},
		{named, place.Dir, "no more than two", errs.ErrNotSupported},
		{place.Tree.Path, "state", "absolute", errs.ErrNotSupported},
		{view, place.Dir, "", nil},
	} {
		_, err := overlay.Open(t.Context(), snapshot.Place{Tree: snapshot.Tree{Path: c.tree}, Dir: c.dir})
		if !errors.Is(err, c.kind) || c.kind != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s with layers in %s returns %v, want %v, %q", c.tree, c.dir, err, c.kind, c.why)
		}
	}
}

func overlayAt(t *testing.T, o mount.Overlay, dir string) {
	t.Helper()
	mnt, err := mount.NewOverlay(o)
	must(t, err)
	defer mnt.Close()
	must(t, mount.MoveMount(mnt, dir))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
}

func TestOpenNamesTheMountThatRefusesAnOrdinaryUser(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	_, err := overlay.Open(t.Context(), snapshot.Place{Tree: snapshot.Tree{Path: "/"}, Dir: t.TempDir()})
	if !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), "mounted in it") {
		t.Errorf("opening the root returns %v", err)
	}
}
