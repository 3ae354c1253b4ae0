//go:build linux

package overlayquota_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/backends/overlayquota"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestSweepDeletesSubvolumesInScratch(t *testing.T) {
	m := &pools{t: t}
	place := on(t, m.another(t), "")
	opened, err := overlayquota.Driver.Open(t.Context(), place)
	must(t, err)
	b, ok := opened.(interface {
		snapshot.Backend
		snapshot.TmpProvider
	})
	if !ok {
		t.Fatal("the backend lacks an optional power")
	}
	_, err = b.Capture(t.Context(), place.Tree, "s1")
	must(t, err)
	_, err = b.Fork(t.Context(), "s1", "f1")
	must(t, err)
	scratch, err := b.Scratch(t.Context(), "f1")
	must(t, err)
	must(t, btrfs.Create(int(treetest.Open(t, scratch).Fd()), "x"))
	at := scratch
	for _, name := range []string{"a", "b"} {
		must(t, os.MkdirAll(at+"/dir", 0o755))
		must(t, btrfs.Create(int(treetest.Open(t, at+"/dir").Fd()), name))
		at = filepath.Join(at, "dir", name)
		must(t, os.WriteFile(at+"/file", []byte("x"), 0o600))
	}
	for _, path := range []string{at, filepath.Dir(filepath.Dir(at))} {
		must(t, btrfs.SetReadOnly(int(treetest.Open(t, path).Fd()), true))
	}
	must(t, b.Sweep(t.Context()))
	if _, err := os.Lstat(at + "/file"); err != nil {
		t.Errorf("with the fork: %v", err)
	}
	must(t, b.RemoveFork(t.Context(), "f1"))
	must(t, b.Sweep(t.Context()))
	if _, err := os.Lstat(scratch); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the fork was removed: %v", err)
	}
}
