//go:build linux

package viewserver_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/hostview"
	"github.com/snapfs/snapfs/isolate/hostview/viewserver"
)

// TestMain makes the test binary the process of its views.
func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "view" {
		if viewserver.Serve(context.Background(), os.Args[2], os.Args[3], os.Args[4], 0, false) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestAViewReplacesAnother: the end of a view takes nothing away from the next one at the same place. Without the wait
// for the end of the process, some of these lose their directory or their socket. Cost: 20 ms for each.
func TestAViewReplacesAnother(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	top := t.TempDir()
	tree, at, control := top+"/tree", top+"/view", top+"/control"
	must(t, os.Mkdir(tree, 0o755))
	must(t, os.WriteFile(tree+"/f", nil, 0o644))
	self, err := os.Executable()
	must(t, err)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // under the race detector each process of a view would end a second later
	for i := range treetest.Budget(t, 30, 400) {
		must(t, hostview.EndAt(control))
		must(t, hostview.Unmount(t.Context(), at))
		must(t, os.Mkdir(at, 0o755))
		startView(t, []string{self}, at, control, tree)
		if _, err := os.Stat(filepath.Join(at, "f")); err != nil {
			t.Fatalf("view %d: %v", i, err)
		}
		if _, err := os.Stat(control); err != nil {
			t.Fatalf("view %d: %v", i, err)
		}
	}
	must(t, hostview.EndAt(control))
	if _, err := os.Stat(at); err == nil {
		t.Error("the last view has left its directory")
	}
}

// startView starts a view of a tree that belongs to no container, and returns when it is mounted.
func startView(t *testing.T, program []string, at, control, tree string) {
	t.Helper()
	s := &hostview.Source{}
	defer s.Close()
	var err error
	s.Tree, err = os.Open(tree)
	must(t, err)
	ended, running, err := os.Pipe()
	must(t, err)
	s.Ended = ended
	t.Cleanup(func() { running.Close() })
	s.Hold, err = os.Open(os.DevNull)
	must(t, err)
	must(t, hostview.Start(t.Context(), program, at, control, tree, s, 0))
}
