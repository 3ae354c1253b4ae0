package kernel_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestAGroupHoldsSubvolumesMadeInItsMembers(t *testing.T) {
	top, fd := btrfsTop(t)
	must(t, kernel.BtrfsSetQuota(fd, kernel.QuotaSimple))
	must(t, kernel.BtrfsMayLimit(fd))
	must(t, kernel.BtrfsCreate(fd, "a"))
	a := treetest.Open(t, top+"/a")
	info, err := kernel.BtrfsInfo(int(a.Fd()))
	must(t, err)
	group := kernel.BtrfsGroup(7, info.ID)
	for range 2 { // repeatable
		must(t, kernel.BtrfsAddGroup(fd, group))
		must(t, kernel.BtrfsJoinGroup(fd, info.ID, group))
	}
	must(t, kernel.BtrfsLimit(fd, group, 4<<20))
	must(t, kernel.BtrfsCreate(int(a.Fd()), "b"))
	must(t, os.WriteFile(top+"/a/file", make([]byte, 2<<20), 0o644))
	if err := os.WriteFile(top+"/a/b/file", make([]byte, 3<<20), 0o644); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("writing beyond the limit in a nested subvolume: %v", err)
	}
	members, err := kernel.BtrfsMembers(fd, group)
	if err != nil || len(members) != 2 || !slices.Contains(members, info.ID) {
		t.Errorf("members %v, %v", members, err)
	}
	if err := kernel.BtrfsDropGroup(fd, group); err != unix.EBUSY {
		t.Errorf("removing a group with members: %v", err)
	}
	for _, m := range members {
		must(t, kernel.BtrfsLeaveGroup(fd, m, group))
		must(t, kernel.BtrfsLeaveGroup(fd, m, group))
	}
	must(t, kernel.BtrfsDropGroup(fd, group))
	if err := kernel.BtrfsDropGroup(fd, group); err != unix.ENOENT {
		t.Errorf("removing a group twice: %v", err)
	}
	if groups, err := kernel.BtrfsGroups(fd, 7); err != nil || len(groups) > 0 {
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
	if on, err := kernel.ProjectsLimited(fd); err != nil || on != counts {
		t.Fatalf("projects are limited: %v, %v, want %v", on, err, counts)
	}
	if !counts {
		return
	}
	const id = 12345
	if use, err := kernel.ProjectUsage(fd, id); err != nil || use != (kernel.ProjectUse{ID: id}) {
		t.Errorf("nobody's project has %+v, %v", use, err)
	}
	must(t, kernel.SetProject(fd, id, true))
	must(t, kernel.LimitProject(fd, id, 2<<20, 50))
	must(t, os.WriteFile(dir+"/file", make([]byte, 1<<20), 0o644))
	must(t, kernel.SyncFS(fd))
	if got, err := kernel.Project(int(treetest.Open(t, dir+"/file").Fd())); err != nil || got != id {
		t.Errorf("a file made in it has the project %d, %v", got, err)
	}
	use, err := kernel.NextProject(fd, id-10)
	want := kernel.ProjectUse{ID: id, Bytes: use.Bytes, Inodes: 2, BytesLimit: 2 << 20, NodesLimit: 50}
	if err != nil || use != want || use.Bytes < 1<<20 || use.Bytes > 1<<20+64<<10 {
		t.Errorf("it has %+v, %v", use, err)
	}
	if _, err := kernel.NextProject(fd, id+1); err != unix.ENOENT {
		t.Errorf("the project after the last: %v", err)
	}
}
