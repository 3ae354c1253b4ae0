package kernel_test

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
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
	names, err := kernel.ListXattrs(unix.AT_FDCWD, dir)
	if want := []string{"system.posix_acl_default"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("listed are %q, %v; want %q", names, err, want)
	}
	all, err := kernel.Xattrs(unix.AT_FDCWD, dir)
	if err != nil || len(all) != 1 {
		t.Errorf("read are %q, %v", all, err)
	}
}
