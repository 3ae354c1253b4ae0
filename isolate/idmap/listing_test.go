//go:build linux

package idmap_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestListingIsWhole even if the kernel drops cached parts for lack of memory.
func TestListingIsWhole(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	disk := treetest.Dir(t)
	const files = 500
	for i := range files {
		must(t, os.WriteFile(fmt.Sprintf("%s/file-with-a-name-%d", disk, i), nil, 0o644))
	}
	mount, _ := shown(t, disk, 1<<20)
	for range 2 {
		_, err := os.ReadDir(mount)
		must(t, err)
	}
	if seen := treetest.ListInParts(t, mount, func(map[string]bool) {}); len(seen) != files {
		t.Errorf("%d names of %d", len(seen), files)
	}
}
