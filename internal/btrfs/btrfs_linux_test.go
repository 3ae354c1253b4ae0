package btrfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

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

// rootItem returns the root item of a subvolume as it is on disk: struct btrfs_root_item of
// include/uapi/linux/btrfs_tree.h.
func rootItem(t *testing.T, fd int, id uint64) (data []byte) {
	t.Helper()
	const rootTree, rootItem = 1, 132
	must(t, sysbtrfs.Search(fd, sysbtrfs.Range{Tree: rootTree, MinObject: id, MaxObject: id, MinType: rootItem, MaxType: rootItem}, func(it sysbtrfs.Item) bool {
		data = slices.Clone(it.Data)
		return true
	}))
	if len(data) < 311 {
		t.Fatalf("the root item of subvolume %d has %d bytes", id, len(data))
	}
	return data
}

func TestInfoAgreesWithTheRootItemOnDisk(t *testing.T) {
	top, fd := btrfsTop(t)
	must(t, sysbtrfs.Create(fd, "a"))
	a := int(treetest.Open(t, top+"/a").Fd())
	must(t, sysbtrfs.Snapshot(a, fd, "ro", true))
	must(t, sysbtrfs.Snapshot(a, fd, "rw", false))
	must(t, vfs.SyncFS(fd))
	origin, err := sysbtrfs.Info(a)
	must(t, err)
	for name, readOnly := range map[string]bool{"a": false, "ro": true, "rw": false} {
		info, err := sysbtrfs.Info(int(treetest.Open(t, filepath.Join(top, name)).Fd()))
		must(t, err)
		item := rootItem(t, fd, info.ID)
		for _, field := range []struct {
			name string
			at   int // in the root item
			got  []byte
		}{
			{"generation", 160, binary.LittleEndian.AppendUint64(nil, info.Generation)},
			{"uuid", 247, info.UUID[:]},
			{"parent_uuid", 263, info.Parent[:]},
			{"otransid", 303, binary.LittleEndian.AppendUint64(nil, info.Born)},
		} {
			if want := item[field.at : field.at+len(field.got)]; !bytes.Equal(field.got, want) {
				t.Errorf("%s: %s is %x, on disk %x", name, field.name, field.got, want)
			}
		}
		if onDisk := item[208]&1 != 0; info.ReadOnly != readOnly || onDisk != readOnly {
			t.Errorf("%s: read-only is %t, on disk %t, want %t", name, info.ReadOnly, onDisk, readOnly)
		}
		if (info.Parent == origin.UUID) != (name != "a") {
			t.Errorf("%s: parent %x, the origin is %x", name, info.Parent, origin.UUID)
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

// A search with a limit yields the first items of the range and ends, whether one call of the kernel finds them or
// several.
func TestASearchEndsAfterTheMostItems(t *testing.T) {
	top, fd := btrfsTop(t)
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(top, strings.Repeat("z", 100)+strconv.Itoa(i)), nil, 0o644))
	}
	must(t, vfs.SyncFS(fd))
	search := func(most uint32) (keys [][3]uint64) {
		r := sysbtrfs.Range{MinObject: sysbtrfs.RootInode, MaxObject: 1 << 40, Most: most}
		must(t, sysbtrfs.Search(fd, r, func(it sysbtrfs.Item) bool {
			keys = append(keys, [3]uint64{it.Object, uint64(it.Type), it.Offset})
			return true
		}))
		return keys
	}
	all := search(0)
	for _, most := range []int{1, 2, len(all) - 1, len(all), len(all) + 1} {
		if got := search(uint32(most)); !slices.Equal(got, all[:min(most, len(all))]) {
			t.Errorf("a search for %d of %d items found %d", most, len(all), len(got))
		}
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
