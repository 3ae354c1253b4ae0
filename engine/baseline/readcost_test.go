package baseline

import (
	"crypto/sha256"
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// TestAReadingAllocatesLittleForEachFile bounds what a start spends, beside system calls, on listing its workspace
// twice: the file's name, its path, and the name for the kernel. The reader keeps only what it compares.
func TestAReadingAllocatesLittleForEachFile(t *testing.T) {
	const files, most = 1000, 3.5
	dir := treetest.Dir(t)
	if err := os.Mkdir(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(fmt.Sprintf("%s/sub/f%d", dir, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	allocated := testing.AllocsPerRun(5, func() {
		root, err := OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		top, err := vfs.Lstat(int(root.Fd()), "")
		if err != nil {
			t.Fatal(err)
		}
		r := &manifestReader{
			ctx: t.Context(), root: dir, top: top, skip: func(string) bool { return false },
			now: manifest{list: Baseline{Nodes: map[string]Entry{}}}, real: RootedReader{Root: root}, found: sha256.New(),
		}
		defer r.close()
		if err := r.readDir("."); err != nil || len(r.files) != files {
			t.Fatalf("%d files, %v", len(r.files), err)
		}
	})
	if each := allocated / files; each > most {
		t.Errorf("%.2f allocations for each file, more than %v", each, most)
	}
}
