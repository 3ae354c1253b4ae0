package engine_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// TestWhatKeepsABackendFromATreeIsToldWithWhatMendsIt: of the one passed over last, and of the
// only one that was asked for.
func TestWhatKeepsABackendFromATreeIsToldWithWhatMendsIt(t *testing.T) {
	b := newBench(t)
	refuser := snapshot.Driver{Name: "refuser", Automatic: true, Open: func(context.Context, snapshot.Place) (snapshot.Backend, error) {
		return nil, &errs.Error{Op: "opening", Component: "refuser", Kind: errs.ErrNotSupported, Err: errors.New("it will not"), Hints: []string{"ask it"}}
	}}
	last := plain.Driver
	last.Automatic = true
	e, err := engine.Open(t.Context(), engine.Config{State: b.state, Drivers: []snapshot.Driver{refuser, last}})
	if err != nil {
		t.Fatal(err)
	}
	req := b.request()
	trees, err := e.Host.Backends(t.Context(), req)
	if err != nil || len(trees) == 0 {
		t.Fatal(trees, err)
	}
	for _, tree := range trees {
		if strings.Contains(tree.Reason, "refuser") != (len(tree.Hints) > 0) {
			t.Errorf("%s has the reason %q, and the hints %q", tree.Path, tree.Reason, tree.Hints)
		}
	}
	if !slices.ContainsFunc(trees, func(c hostfs.Candidate) bool { return slices.Equal(c.Hints, []string{"ask it"}) }) {
		t.Errorf("nothing mends the reasons of %+v", trees)
	}
	req.Backend = "refuser"
	if _, err = e.Host.Backends(t.Context(), req); !slices.Equal(errs.HintsOf(err), []string{"ask it", "snapfs doctor"}) {
		t.Errorf("%v has the hints %q", err, errs.HintsOf(err))
	}
}

// TestAFrozenBaseIsFrozenInAllOfTheWorkspace: what is mounted in it is frozen too, or the sandbox refused
// with its name; and where nobody asked, it gets the best that can hold it.
func TestAFrozenBaseIsFrozenInAllOfTheWorkspace(t *testing.T) {
	treetest.NeedRoot(t)
	b := benchIn(t, treetest.Btrfs(t), treetest.Dir(t))
	inner := b.workspace + "/inner"
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := func(from string) {
		t.Helper()
		if err := unix.Mount(from, inner, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func() {
		t.Helper()
		if err := unix.Unmount(inner, 0); err != nil {
			t.Fatal(err)
		}
	}
	drivers := func(frozen bool) (in string, err error) {
		t.Helper()
		req := b.request()
		req.Frozen = frozen
		trees, err := b.Host.Backends(t.Context(), req)
		for _, tree := range trees {
			if tree.Path == inner {
				in = tree.Driver
			}
		}
		return in, err
	}
	mount(treetest.Dir(t))
	if _, err := drivers(true); !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), inner) {
		t.Errorf("with ext4 in it: %v; want that it cannot be frozen", err)
	}
	if in, err := drivers(false); err != nil || in != "overlay" {
		t.Errorf("with ext4 in it: %q, %v", in, err)
	}
	unmount()
	mount(treetest.Btrfs(t))
	defer unmount()
	for _, frozen := range []bool{true, false} {
		if in, err := drivers(frozen); err != nil || in != "btrfs" {
			t.Errorf("with btrfs in it: %q, %v", in, err)
		}
	}
}

// TestASandboxSeesNoClonesOfAnotherBackend: btrfs stores its clones beside the trees, where a sandbox with another
// backend has the directory in a tree of its own.
func TestASandboxSeesNoClonesOfAnotherBackend(t *testing.T) {
	treetest.NeedRoot(t)
	disk := treetest.Btrfs(t)
	b := benchIn(t, disk, treetest.Dir(t))
	b.new("clone")
	if out := b.in("clone", "echo theirs > theirs && cat theirs"); out != "theirs\n" {
		t.Fatal(out)
	}
	if _, err := os.Stat(disk + "/.snapfs"); err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"overlay", "fusecow"} {
		req := b.request()
		req.Name, req.Backend = backend, backend
		if _, err := b.New(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		b.removeLater(backend)
		if out := b.in(backend, "ls -A "+disk+"/.snapfs"); out != "" {
			t.Errorf("%s: a sandbox sees %q", backend, out)
		}
	}
}
