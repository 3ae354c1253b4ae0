//go:build linux

package snapshottest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A workbench is a backend with a tree, opened for one conformance test of it. Its methods end the test if
// the backend returns an error.
type workbench struct {
	testing.TB
	subject Subject
	place   snapshot.Place
	b       snapshot.Backend
}

func newWorkbench(t testing.TB, s Subject, where func(testing.TB) snapshot.Place) *workbench {
	t.Helper()
	place := where(t)
	return &workbench{TB: t, subject: s, place: place, b: s.open(t, place)}
}

func (s Subject) open(t testing.TB, place snapshot.Place) snapshot.Backend {
	t.Helper()
	b, err := s.Driver.Open(t.Context(), place)
	if err != nil {
		t.Fatalf("opening %s: %v", s.Driver.Name, err)
	}
	return b
}

// reopen opens the backend again, as the next process would do, to test that nothing depends on memory.
func (x *workbench) reopen() {
	x.Helper()
	x.b = x.subject.open(x, x.place)
}

func (x *workbench) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// fails checks that err is an *errs.Error that matches kind; doing describes the call in failures.
func (x *workbench) fails(err, kind error, doing string) {
	x.Helper()
	var e *errs.Error
	switch {
	case err == nil:
		x.Errorf("%s succeeds, want %q", doing, kind)
	case !errors.Is(err, kind):
		x.Errorf("%s returns %q, want %q", doing, err, kind)
	case !errors.As(err, &e):
		x.Errorf("%s returns a %T, not a *errs.Error", doing, err)
	case e.Op == "" || e.Kind == nil:
		x.Errorf("%s returns an error without operation or kind: %#v", doing, e)
	}
}

// capture makes a snapshot with exactly this id. If the backend returns an older snapshot of the
// unchanged tree, capture changes the tree and tries again.
func (x *workbench) capture(id snapshot.ID) snapshot.Snapshot {
	x.Helper()
	s, err := x.b.Capture(x.Context(), x.place.Tree, id)
	x.must(err)
	if s.ID != id {
		x.stamp(string(id))
		s, err = x.b.Capture(x.Context(), x.place.Tree, id)
		x.must(err)
	}
	if s.ID != id {
		x.Fatalf("the capture %s of a changed tree has the id %s", id, s.ID)
	}
	return s
}

// stamp writes id, a text that no earlier call wrote, to a file of the real tree, so that the backend must
// make a new snapshot at the next capture.
func (x *workbench) stamp(id string) {
	x.Helper()
	x.write("captured-for", id)
}

func (x *workbench) fork(from snapshot.ID, id snapshot.ForkID) snapshot.Fork {
	x.Helper()
	f, err := x.b.Fork(x.Context(), from, id)
	x.must(err)
	if f.ID != id || f.Base != from {
		x.Errorf("the fork %s of %s describes itself as %s of %s", id, from, f.ID, f.Base)
	}
	if is := f.View.Served != nil || f.View.Overlay != nil && len(f.View.Overlay.Base) > 0; is != x.b.Facts().Served {
		x.Errorf("the view of the fork %s is served: %t; the facts say otherwise", id, is)
	}
	return f
}

func (x *workbench) seal(fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) snapshot.Snapshot {
	x.Helper()
	s, err := x.b.Seal(x.Context(), fork, id, use)
	x.must(err)
	return s
}

// view returns the present view of a fork, which a seal may have changed.
func (x *workbench) view(id snapshot.ForkID) snapshot.View {
	x.Helper()
	f, err := x.b.LookupFork(x.Context(), id)
	x.must(err)
	return f.View
}

func (x *workbench) snap(id snapshot.ID) snapshot.View {
	x.Helper()
	s, err := x.b.Lookup(x.Context(), id)
	x.must(err)
	return s.View
}

// in mounts the view v, calls do with a path of its root, and unmounts it.
func (x *workbench) in(v snapshot.View, do func(dir string)) {
	x.Helper()
	root := x.reach(v)
	defer root.Close()
	do(vfs.FDPath(root) + "/.")
}

func (x *workbench) reach(v snapshot.View) *os.File {
	x.Helper()
	if x.subject.Reach != nil {
		return x.subject.Reach(x, v)
	}
	path, o := v.Path, v.Overlay
	if v.Served != nil || o != nil {
		var mnt *os.File
		var err error
		if o == nil {
			var fd int
			fd, err = v.Served.Mount(x.Context(), false)
			mnt = os.NewFile(uintptr(fd), "served")
		} else {
			mnt, err = mount.NewOverlay(mount.Overlay{
				Lower: o.Lower, Upper: o.Upper, Work: o.Work, UserXattr: o.UserXattr, Nested: o.Nested,
				RedirectDir: !o.UserXattr, Metacopy: o.Metacopy, NoIndex: true,
			})
		}
		x.must(err)
		defer mnt.Close()
		path = vfs.FDPath(mnt)
	}
	root, err := os.Open(path)
	x.must(err)
	return root
}

// write creates or replaces the file name of the real tree, with this text.
func (x *workbench) write(name, text string) {
	x.Helper()
	x.put(x.place.Tree.Path, name, text)
}

func (x *workbench) put(dir, name, text string) {
	x.Helper()
	path := filepath.Join(dir, name)
	x.must(os.MkdirAll(filepath.Dir(path), 0o755))
	x.must(os.WriteFile(path, []byte(text), 0o644))
}

// read returns the text of the file name in a view, a snapshot or a fork of the backend, or "" if it does not
// exist.
func (x *workbench) read(v snapshot.View, name string) (text string) {
	x.Helper()
	x.in(v, func(dir string) {
		data, err := os.ReadFile(dir + "/" + name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			x.Fatal(err)
		}
		text = string(data)
	})
	return text
}

// has checks that the file name in a view, a snapshot or a fork of the backend, has the text want. when
// describes the moment in failures.
func (x *workbench) has(v snapshot.View, name, want, when string) {
	x.Helper()
	if got := x.read(v, name); got != want {
		x.Errorf("%s: %s holds %q, want %q", when, name, short(got), short(want))
	}
}

func short(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// clean removes all snapshots and forks of the backend and checks that it then lists none.
func (x *workbench) clean() {
	x.Helper()
	ctx := context.WithoutCancel(x.Context())
	snaps, forks, err := x.b.List(ctx)
	x.must(err)
	for _, f := range forks {
		x.must(x.b.RemoveFork(ctx, f))
	}
	for _, s := range snaps {
		x.must(x.b.Remove(ctx, s))
	}
	x.must(x.b.Sweep(ctx))
	if snaps, forks, err := x.b.List(ctx); err != nil || len(snaps)+len(forks) > 0 {
		x.Errorf("after removing all, List returns %v, %v, %v", snaps, forks, err)
	}
}
