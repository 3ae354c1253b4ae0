package btrfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dennwc/btrfs"
	sysbtrfs "github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func btrfsTop(t *testing.T) (string, int) {
	t.Helper()
	top := treetest.Btrfs(t)
	return top, int(treetest.Open(t, top).Fd())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSubvolumesAreAsTheLibrarySeesThem(t *testing.T) {
	top, fd := btrfsTop(t)
	must(t, sysbtrfs.Create(fd, "a"))
	a := int(treetest.Open(t, top+"/a").Fd())
	must(t, sysbtrfs.Snapshot(a, fd, "ro", true))
	must(t, sysbtrfs.Snapshot(a, fd, "rw", false))
	list, err := btrfs.Open(top, true)
	must(t, err)
	defer list.Close()
	for _, name := range []string{"a", "ro", "rw"} {
		theirs, err := list.SubvolumeByPath(name)
		must(t, err)
		f := treetest.Open(t, filepath.Join(top, name))
		ours, err := sysbtrfs.Info(int(f.Fd()))
		must(t, err)
		readOnly, err := btrfs.IsReadOnly(f.Name())
		if err != nil || ours.ReadOnly != readOnly || ours.ID != theirs.RootID ||
			[16]byte(ours.UUID) != [16]byte(theirs.UUID) || [16]byte(ours.Parent) != [16]byte(theirs.ParentUUID) || ours.Born != theirs.OTransID {
			t.Errorf("%s: we see %+v, the library %+v, %v", name, ours, theirs, err)
		}
	}
	must(t, sysbtrfs.Destroy(fd, "rw"))
}

func TestNestedSubvolumesAreFoundBeneathADirectoryOnly(t *testing.T) {
	top, fd := btrfsTop(t)
	var want []string
	for i := range 300 { // more than one answer of the kernel holds
		name := "n" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26)
		must(t, sysbtrfs.Create(fd, name))
		want = append(want, name)
	}
	must(t, os.MkdirAll(top+"/dir/deep", 0o755))
	deep := int(treetest.Open(t, top+"/dir/deep").Fd())
	must(t, sysbtrfs.Create(deep, "sub"))
	want = append(want, "dir/deep/sub")
	got, err := sysbtrfs.Nested(fd)
	must(t, err)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %d of %d", len(got), len(want))
	}
	got, err = sysbtrfs.Nested(int(treetest.Open(t, top+"/dir").Fd()))
	if err != nil || !slices.Equal(got, []string{"deep/sub"}) {
		t.Errorf("beneath the directory: %q, %v", got, err)
	}
}

func TestASearchFindsEveryItemAcrossBuffers(t *testing.T) {
	top, fd := btrfsTop(t)
	const files = 5000 // some ten buffers full
	for i := range files {
		must(t, os.WriteFile(filepath.Join(top, "f"+strings.Repeat("z", i%100)+string(rune('a'+i/200))+string(rune('a'+i%200))), nil, 0o644))
	}
	must(t, os.Link(top+"/fa"+"a", top+"/other"))
	entries, err := os.ReadDir(top)
	must(t, err)
	must(t, vfs.SyncFS(fd))
	inodes, names, links := 0, map[string]bool{}, 0
	must(t, sysbtrfs.Search(fd, sysbtrfs.Range{MinObject: 256, MaxObject: 1 << 40}, func(it sysbtrfs.Item) bool {
		if node, ok := it.Inode(); ok && node.Mode&unix.S_IFMT == unix.S_IFREG {
			inodes++
			links += int(node.Links)
		}
		if e, ok := it.Entry(); ok {
			names[e.Name] = true
		}
		return true
	}))
	if inodes != files || links != files+1 || len(names) != len(entries) {
		t.Errorf("%d inodes, %d links, %d names; %d names on disk", inodes, links, len(names), len(entries))
	}
}

func TestSimpleQuotaLimitsWhatACloneWrites(t *testing.T) {
	top, fd := btrfsTop(t)
	must(t, sysbtrfs.SetQuota(fd, sysbtrfs.QuotaSimple))
	must(t, sysbtrfs.SetQuota(fd, sysbtrfs.QuotaSimple)) // repeatable
	if mode, err := sysbtrfs.QuotaModeOf(fd); err != nil || mode != sysbtrfs.QuotaSimple {
		t.Fatalf("mode %q, %v", mode, err)
	}
	must(t, sysbtrfs.Create(fd, "a"))
	info, err := sysbtrfs.Info(int(treetest.Open(t, top+"/a").Fd()))
	must(t, err)
	must(t, sysbtrfs.Limit(fd, info.ID, 4<<20))
	must(t, os.WriteFile(top+"/a/fits", make([]byte, 2<<20), 0o644))
	if err := os.WriteFile(top+"/a/bursts", make([]byte, 8<<20), 0o644); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("writing beyond the limit: %v", err)
	}
	must(t, vfs.SyncFS(fd))
	if n, err := sysbtrfs.Usage(fd, info.ID); err != nil || n < 2<<20 || n > 5<<20 {
		t.Errorf("usage %d, %v", n, err)
	}
	if _, err := sysbtrfs.Queue(fd); err != nil && err != unix.ENOTTY {
		t.Error(err)
	}
}
