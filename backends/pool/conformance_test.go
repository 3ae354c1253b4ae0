//go:build linux

package pool_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

// imports creates a pool, and imports an empty tree from the directory that at returns.
func imports(t testing.TB, at func(top string, p *pool.Pool) string) snapshot.Place {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "btrfs")
	treetest.NeedProgram(t, "mkfs.btrfs")
	top := treetest.Dir(t)
	dir := filepath.Join(top, "pools")
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Join(dir, "p/mnt"), 0); err != nil {
			t.Error("unmount:", err)
		}
	})
	p, err := pool.Create(t.Context(), dir, "p", 512<<20)
	must(t, err)
	place := snapshot.Place{Tree: snapshot.Tree{Path: at(top, p)}, Dir: dir}
	must(t, os.Mkdir(place.Tree.Path, 0o755))
	_, err = p.Import(t.Context(), place.Tree.Path, nil)
	must(t, err)
	b, err := pool.Driver.Open(t.Context(), place)
	must(t, err)
	_, err = b.Capture(t.Context(), place.Tree, "first") // creates .snapfs, which stays
	must(t, err)
	must(t, b.Remove(t.Context(), "first"))
	must(t, b.Sweep(t.Context()))
	return place
}

func subject() snapshottest.Subject {
	return snapshottest.Subject{
		Name:   "pool (root)",
		Driver: pool.Driver,
		Place: func(t testing.TB) snapshot.Place {
			return imports(t, func(top string, _ *pool.Pool) string { return filepath.Join(top, "work") })
		},
		// The suite fills the pool, so the tree is on the pool too.
		Small: func(t testing.TB) snapshot.Place {
			return imports(t, func(_ string, p *pool.Pool) string {
				treetest.Crowd(t, filepath.Join(p.Dir, "mnt"))
				return filepath.Join(p.Dir, "mnt", "work")
			})
		},
		Data: func(p snapshot.Place) []string { return []string{filepath.Join(p.Dir, "p/mnt/.snapfs")} },
	}
}

func TestConformance(t *testing.T) { snapshottest.Run(t, subject()) }
