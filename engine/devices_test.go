package engine_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A workspace on another disk than the state directory is one filesystem in a sandbox, as on the host: directories,
// unchanged files and new files have the same device number.
func TestAWorkspaceOnAnotherDiskHasOneDeviceNumber(t *testing.T) {
	treetest.NeedRoot(t)
	t.Setenv(onlyEnv, "overlay")
	b := benchIn(t, treetest.Ext4(t, 64<<20), treetest.Dir(t))
	if err := os.Mkdir(b.workspace+"/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("dir/changed", "base\n")
	b.write("dir/unchanged", "base\n")
	b.new("s")
	devices := strings.Fields(b.in("s", "echo x >>dir/changed; echo new >dir/new; stat -c %d . dir dir/changed dir/new dir/unchanged"))
	if len(devices) != 5 || len(slices.Compact(slices.Clone(devices))) != 1 {
		t.Errorf("the device numbers differ: %q", devices)
	}
}
