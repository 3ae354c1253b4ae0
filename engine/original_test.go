package engine_test

import (
	"errors"
	"os"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// What a sandbox changed and then the user too is merged, although snapfs looked at
// neither before both had: the backend has kept what they began with.
func TestWhatABackendKeptIsMergedWith(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	b := newBench(t)
	const base = "one\n2\n3\n4\n5\nsix\n"
	for _, name := range []string{"written", "replaced"} {
		b.write(name, base)
	}
	tick()
	req := b.request()
	req.Name, req.Backend = "s", "fusecow"
	if _, err := b.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b.removeLater("s")
	// As long as something runs nobody looks.
	idle, err := b.Supervise.Exec(t.Context(), "s", isolate.Command{
		Args: []string{"/bin/sleep", "1000"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.in("s", "sed -i s/one/mine/ replaced; sed s/one/mine/ written > new; cat new > written; rm new")
	tick()
	for _, name := range []string{"written", "replaced"} {
		b.write(name, "one\n2\n3\n4\n5\ntheirs\n")
	}
	if err := errors.Join(idle.Close(), b.Supervise.Stop(t.Context(), "s")); err != nil {
		t.Fatal(err)
	}
	r, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{})
	if err != nil || len(r.Conflicts) > 0 {
		t.Fatalf("conflicts: %+v, %v", r.Conflicts, err)
	}
	if _, err := b.Reconcile.Promote(t.Context(), "s", strictly()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"written", "replaced"} {
		if text, err := os.ReadFile(b.workspace + "/" + name); string(text) != "mine\n2\n3\n4\n5\ntheirs\n" {
			t.Errorf("%s merged: %q, %v", name, text, err)
		}
	}
}
