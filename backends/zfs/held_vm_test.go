//go:build vm

package zfs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// TestTheKernelAndZFSAgreeOnHeldSpace: the ioctl returns the number that zfs(8) prints, and starts no program.
func TestTheKernelAndZFSAgreeOnHeldSpace(t *testing.T) {
	p := place(t)
	b := opened(t, p)
	grown(t, b, p)
	ids := []snapshot.ID{"k1", "k2", "k3"}
	defer func() {
		for _, id := range ids {
			must(t, b.Remove(t.Context(), id))
		}
		gone(t, b)
	}()
	f, err := b.LookupFork(t.Context(), "f1")
	must(t, err)
	for _, id := range ids {
		must(t, os.WriteFile(f.View.Path+"/file", []byte(strings.Repeat(string(id), 100<<10)), 0o600))
		must(t, os.WriteFile(f.View.Path+"/"+string(id), []byte(strings.Repeat(string(id), 10<<10)), 0o600))
		_, err := b.Seal(t.Context(), "f1", id, snapshot.InUse)
		must(t, err)
	}
	must(t, os.Remove(f.View.Path+"/k1")) // two snapshots share it
	must(t, os.WriteFile(f.View.Path+"/file", nil, 0o600))
	names := strings.Fields(sh(t, "list", "-H", "-r", "-t", "snapshot", "-s", "createtxg", "-o", "name", of(t, p)))
	names = names[len(names)-3:]
	held, err := b.MeasureExclusive(t.Context(), ids)
	must(t, err)
	if held[0] == 0 || held[1] > held[0] || held[2] > held[1] {
		t.Errorf("the snapshots hold %v", held)
	}
	quick, err := zfs.WouldFree(t.Context(), names[0], names[2])
	must(t, err)
	t.Run("without programs", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := zfs.WouldFree(t.Context(), names[0], names[2])
		must(t, err)
	})
	zfs.WithoutKernel(t)
	slow, err := zfs.WouldFree(t.Context(), names[0], names[2])
	must(t, err)
	if quick != slow || int64(held[0]) != slow {
		t.Errorf("three snapshots hold %v; the kernel says %d, and zfs(8) %d", held, quick, slow)
	}
}
