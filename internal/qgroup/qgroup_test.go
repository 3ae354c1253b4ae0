//go:build linux

package qgroup_test

import (
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/qgroup"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A sweep has found a group empty; then a new fork joins it.
func TestASweepKeepsAMemberThatJoinsMeanwhile(t *testing.T) {
	treetest.NeedRoot(t)
	if !btrfs.SimpleQuota() {
		treetest.Skip(t, "simple quotas", "this kernel's btrfs has none")
	}
	top := treetest.Btrfs(t)
	fd := int(treetest.Open(t, top).Fd())
	must(t, qgroup.Count(t.Context(), fd))
	ids := map[string]uint64{}
	group := qgroup.Shared("sandbox")
	for _, name := range []string{"old", "new"} {
		must(t, btrfs.Create(fd, name))
		root := treetest.Open(t, top+"/"+name)
		info, err := btrfs.Info(int(root.Fd()))
		must(t, err)
		ids[name] = info.ID
		must(t, qgroup.Hold(t.Context(), fd, int(root.Fd()), group, 64<<20))
		root.Close()
	}
	must(t, btrfs.Destroy(fd, "old"))
	for _, seen := range [][]uint64{nil, {ids["old"]}} {
		must(t, qgroup.Forget(fd, group, seen))
		if in, err := qgroup.Of(fd, ids["new"]); err != nil || !slices.Equal(in, []uint64{group}) {
			t.Errorf("the new member is in %x, %v", in, err)
		}
	}
	must(t, btrfs.Destroy(fd, "new"))
	must(t, qgroup.Sweep(fd))
	if left, err := btrfs.Groups(fd, qgroup.Level); err != nil || len(left) > 0 {
		t.Errorf("without members the groups are %x, %v", left, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
