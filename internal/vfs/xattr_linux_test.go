package vfs_test

import (
	"os"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// TestAnAccessControlListIsListedOnce, also where the filesystem lists what it makes of it.
func TestAnAccessControlListIsListedOnce(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Small(t, "xfs", 320<<20) + "/dir"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	list := []byte("\x02\x00\x00\x00\x01\x00\a\x00\xff\xff\xff\xff\x04\x00\x05\x00\xff\xff\xff\xff\x20\x00\x05\x00\xff\xff\xff\xff")
	if err := unix.Setxattr(dir, "system.posix_acl_default", list, 0); err != nil {
		t.Fatal(err)
	}
	names, err := vfs.ListXattrs(unix.AT_FDCWD, dir)
	if want := []string{"system.posix_acl_default"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("listed are %q, %v; want %q", names, err, want)
	}
	all, err := vfs.Xattrs(unix.AT_FDCWD, dir)
	if err != nil || len(all) != 1 {
		t.Errorf("read are %q, %v", all, err)
	}
}
