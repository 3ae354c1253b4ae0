package btrfs_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func TestAGroupHoldsSubvolumesMadeInItsMembers(t *testing.T) {
	top, fd := btrfsTop(t)
	must(t, btrfs.SetQuota(fd, btrfs.QuotaSimple))
	must(t, btrfs.MayLimit(fd))
	must(t, btrfs.Create(fd, "a"))
	a := treetest.Open(t, top+"/a")
	info, err := btrfs.Info(int(a.Fd()))
	must(t, err)
	group := btrfs.Group(7, info.ID)
	for range 2 { // repeatable
		must(t, btrfs.AddGroup(fd, group))
		must(t, btrfs.JoinGroup(fd, info.ID, group))
	}
	must(t, btrfs.Limit(fd, group, 4<<20))
	must(t, btrfs.Create(int(a.Fd()), "b"))
	must(t, os.WriteFile(top+"/a/file", make([]byte, 2<<20), 0o644))
	if err := os.WriteFile(top+"/a/b/file", make([]byte, 3<<20), 0o644); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("writing beyond the limit in a nested subvolume: %v", err)
	}
	members, err := btrfs.Members(fd, group)
	if err != nil || len(members) != 2 || !slices.Contains(members, info.ID) {
		t.Errorf("members %v, %v", members, err)
	}
	if err := btrfs.DropGroup(fd, group); err != unix.EBUSY {
		t.Errorf("removing a group with members: %v", err)
	}
	for _, m := range members {
		must(t, btrfs.LeaveGroup(fd, m, group))
		must(t, btrfs.LeaveGroup(fd, m, group))
	}
	must(t, btrfs.DropGroup(fd, group))
	if err := btrfs.DropGroup(fd, group); err != unix.ENOENT {
		t.Errorf("removing a group twice: %v", err)
	}
	if groups, err := btrfs.Groups(fd, 7); err != nil || len(groups) > 0 {
		t.Errorf("groups %v, %v", groups, err)
	}
}

// Where the kernel has no project quotas, it has to be known.
func TestAProjectIsChargedForWhatIsMadeInItsDirectory(t *testing.T) {
	top, counts := treetest.Projects(t, "ext4", 64<<20)
	if !counts {
		top = treetest.Ext4(t, 16<<20)
	}
	dir := top + "/dir"
	must(t, os.Mkdir(dir, 0o755))
	f := treetest.Open(t, dir)
	fd := int(f.Fd())
	if on, err := projquota.Enabled(fd); err != nil || on != counts {
		t.Fatalf("projects are limited: %v, %v, want %v", on, err, counts)
	}
	if !counts {
		return
	}
	const id = 12345
	if use, err := projquota.Usage(fd, id); err != nil || use != (projquota.Use{ID: id}) {
		t.Errorf("nobody's project has %+v, %v", use, err)
	}
	must(t, projquota.Set(fd, id, true))
	must(t, projquota.Limit(fd, id, 2<<20, 50))
	must(t, os.WriteFile(dir+"/file", make([]byte, 1<<20), 0o644))
	must(t, vfs.SyncFS(fd))
	if got, err := projquota.Of(int(treetest.Open(t, dir+"/file").Fd())); err != nil || got != id {
		t.Errorf("a file made in it has the project %d, %v", got, err)
	}
	use, err := projquota.Usage(fd, id)
	want := projquota.Use{ID: id, Bytes: use.Bytes, Inodes: 2, BytesLimit: 2 << 20, NodesLimit: 50}
	if err != nil || use != want || use.Bytes < 1<<20 || use.Bytes > 1<<20+64<<10 {
		t.Errorf("it has %+v, %v", use, err)
	}
}
