//go:build vm

package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// otherPool is a pool on a file, as another machine has one, which goes with the test.
func otherPool(t *testing.T) string {
	t.Helper()
	dir := treetest.Dir(t)
	disk, pool := dir+"/disk", "of-"+filepath.Base(dir)
	f, err := os.Create(disk)
	if err == nil {
		err = f.Truncate(1 << 30)
		f.Close()
	}
	if err == nil {
		_, err = run.Output(t.Context(), "zpool", "create", "-f", "-O", "mountpoint=none", "-O", "acltype=posixacl", "-O", "xattr=sa", pool, disk)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := run.Output(context.WithoutCancel(t.Context()), "zpool", "destroy", "-f", pool); err != nil {
			t.Error(err)
		}
	})
	return pool
}

// TestWhatIsSentOnZFSIsEqualHoweverOftenItIsInterrupted: between two pools, and between
// one and btrfs.
func TestWhatIsSentOnZFSIsEqualHoweverOftenItIsInterrupted(t *testing.T) {
	on := func(t *testing.T, pool string) *bench {
		t.Helper()
		b, _ := onPool(t, pool)
		return b
	}
	tank := os.Getenv("SNAPFS_TEST_ZFS")
	for name, pair := range map[string]machines{
		"two pools":     func(t *testing.T) (*bench, *bench) { return on(t, tank), on(t, otherPool(t)) },
		"zfs and btrfs": func(t *testing.T) (*bench, *bench) { return on(t, tank), wholeBtrfs(t) },
		"btrfs and zfs": func(t *testing.T) (*bench, *bench) { return wholeBtrfs(t), on(t, tank) },
	} {
		t.Run(name, func(t *testing.T) {
			treetest.Leaks(t) // before the two, which keep their last base until they end
			interrupted(t, pair, treetest.Powers{Root: true, NoDirRename: true, NoExchange: true})
		})
	}
}
