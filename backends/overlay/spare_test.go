//go:build linux

package overlay_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestAReusedLayerKeepsNoAttributes(t *testing.T) {
	treetest.NeedRoot(t)
	reuses(t)
}

func TestAnOrdinaryUserReusesLayers(t *testing.T) {
	if treetest.AsUser(t) && treetest.InNamespace(t) {
		reuses(t)
	}
}

func reuses(t *testing.T) {
	s := newFixture(t, snapshottest.OnDisk(t))
	s.capture("base")
	upper := s.fork("base", "first").Overlay.Upper
	var old, again unix.Stat_t
	must(t, unix.Stat(upper, &old))
	_ = s.volatile("first", "file")
	must(t, os.Remove(upper+"/file"))
	must(t, errors.Join(os.Chmod(upper, 0o700), unix.Setxattr(upper, "user.note", []byte("old"), 0)))
	must(t, s.RemoveFork(t.Context(), "first"))
	s.sweep()
	s.empty("layers")
	s.empty("trash")
	v := s.fork("base", "second")
	must(t, unix.Stat(v.Overlay.Upper, &again))
	if again.Ino != old.Ino {
		t.Error("the layer was not reused")
	}
	if n, _ := unix.Listxattr(v.Overlay.Upper, nil); n != 0 || again.Mode != old.Mode || again.Mtim != old.Mtim {
		t.Errorf("the reused layer has %d bytes of attributes, mode %o, time %v", n, again.Mode, again.Mtim)
	}
	must(t, s.volatile("second", "file"))
	must(t, s.RemoveFork(t.Context(), "second"))
	s.sweep()
	if v := s.fork("base", "third"); v.Overlay.Upper == "" {
		t.Error("no layer")
	} else if _, err := os.Lstat(v.Overlay.Upper + "/file"); err == nil {
		t.Error("a layer with content was reused")
	}
}
