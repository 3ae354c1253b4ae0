//go:build vm

package zfs_test

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// properties returns the properties of a base and of its fork as zfs(8) lists them, without names and
// times.
func properties(t *testing.T, b *zfs.Backend, p snapshot.Place, id string, quietly func(func())) string {
	t.Helper()
	quietly(func() {
		_, _, err := b.Clone(t.Context(), p.Tree, snapshot.ID(id), snapshot.ForkID(id))
		must(t, err)
		_, err = b.Seal(t.Context(), snapshot.ForkID(id), snapshot.ID(id+"sealed"), snapshot.Idle)
		must(t, err)
	})
	var all strings.Builder
	names := strings.Fields(sh(t, "list", "-H", "-r", "-t", "all", "-s", "createtxg", "-o", "name", of(t, p)))
	for _, name := range names[2:] { // the tree, and the dataset for forks
		value := sh(t, "get", "-H", "-p", "-o", "value", "snapfs:mark", name)
		if value == "-" || !strings.HasSuffix(name, value) {
			t.Errorf("the mark of %s is %q", name, value)
		}
		all.WriteString(sh(t, "get", "-H", "-p", "-o", "property,value,source", "type,readonly,mountpoint,canmount,compression", name) + "\n")
		if strings.Contains(name, "@") {
			held := strings.Fields(sh(t, "holds", "-H", name))
			if len(held) < 2 {
				t.Errorf("%s is held by %q", name, held)
				continue
			}
			all.WriteString(held[1] + "\n")
		}
	}
	must(t, b.RemoveFork(t.Context(), snapshot.ForkID(id)))
	must(t, b.Remove(t.Context(), snapshot.ID(id+"sealed")))
	must(t, b.Remove(t.Context(), snapshot.ID(id)))
	must(t, b.Sweep(t.Context()))
	return all.String()
}

func TestKernelCallsEqualZFSCommandsWithoutAProcess(t *testing.T) {
	p := place(t)
	b := opened(t, p)
	grown(t, b, p) // creates the dataset for forks by zfs(8)
	gone(t, b)
	here := properties(t, b, p, "quick", func(do func()) {
		t.Run("without programs", func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			do()
		})
	})
	zfs.WithoutKernel(t)
	if there := properties(t, b, p, "slow", func(do func()) { do() }); here != there || len(here) < 100 {
		t.Errorf("the kernel call made\n%s\nand zfs(8)\n%s", here, there)
	}
}
