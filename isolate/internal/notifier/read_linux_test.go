package notifier

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestDirectoriesAboveAreThoseOfTheKernel: ".." after a symbolic link leads to the parent of the directory to which
// the link leads.
func TestDirectoriesAboveAreThoseOfTheKernel(t *testing.T) {
	dir := treetest.Dir(t)
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "proc/sub"), 0o755), os.Symlink("proc/sub", filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "proc/file"), nil, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := NewTree(int(root.Fd()))
	defer in.Close()
	real := filepath.Join(dir, "proc/file")
	for _, raw := range []string{real, dir + "/link/../file", dir + "/../" + filepath.Base(dir) + "/link/../../link/../file", "/proc/self/../.." + real} {
		call := Call{PID: os.Getpid(), Act: Read, Path: filepath.Clean(raw), raw: raw}
		if got := call.Read(in); got != real {
			t.Errorf("%s reads %q", raw, got)
		}
		if got := call.Program(in); got != real {
			t.Errorf("%s executes %q", raw, got)
		}
		call.Act, call.To, call.rawTo = Move, call.Path, raw
		if from, to := call.Moved(in); from != real || to != real {
			t.Errorf("%s moves %q to %q", raw, from, to)
		}
	}
}
