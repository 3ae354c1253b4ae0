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

// A workbench is a backend with a tree, opened for one test. Its methods end the
// test where the backend does not do as told.
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

// again opens the backend anew, as the next process would.
func (x *workbench) again() {
	x.Helper()
	x.b = x.subject.open(x, x.place)
}

func (x *workbench) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// fails checks that err is the contract's error of a kind.
func (x *workbench) fails(err, kind error, doing string) {
	x.Helper()
	var e *errs.Error
	switch {
	case err == nil:
		x.Errorf("%s succeeds, it should be %q", doing, kind)
	case !errors.Is(err, kind):
		x.Errorf("%s gives %q, which is not %q", doing, err, kind)
	case !errors.As(err, &e):
		x.Errorf("%s gives a %T, not a *errs.Error", doing, err)
	case e.Op == "" || e.Kind == nil:
		x.Errorf("%s gives an error without operation or kind: %#v", doing, e)
	}
}

// capture makes a snapshot that has this id for certain: of an unchanged tree a
// backend may answer with one that it has already.
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
		x.Fatalf("the capture %s of a changed tree is %s", id, s.ID)
	}
	return s
}

// stamp changes the real tree so that the next capture is a new one.
func (x *workbench) stamp(id string) {
	x.Helper()
	x.write("captured-for", id)
}

func (x *workbench) fork(from snapshot.ID, id snapshot.ForkID) snapshot.Fork {
	x.Helper()
	f, err := x.b.Fork(x.Context(), from, id)
	x.must(err)
	if f.ID != id || f.Base != from {
		x.Errorf("the fork %s of %s calls itself %s of %s", id, from, f.ID, f.Base)
	}
	if is := f.View.Served != nil || f.View.Overlay != nil && len(f.View.Overlay.Base) > 0; is != x.b.Facts().Served {
		x.Errorf("that the fork %s is served is %t, the facts say otherwise", id, is)
	}
	return f
}

func (x *workbench) seal(fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) snapshot.Snapshot {
	x.Helper()
	s, err := x.b.Seal(x.Context(), fork, id, use)
	x.must(err)
	return s
}

// view is how the fork is reached now: sealing may have changed it.
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

// in calls do with a directory by which the view is reached, while it is.
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
				RedirectDir: !o.UserXattr, Metacopy: !o.UserXattr, NoIndex: true,
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

// write makes or replaces a file of the real tree.
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

// read is the text of a file, "" when there is none.
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

// has checks the text of a file of a view.
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

// clean removes all snapshots and forks and checks that none is left.
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
	if s, ok := x.b.(snapshot.Sweeper); ok {
		x.must(s.Sweep(ctx))
	}
	if snaps, forks, err := x.b.List(ctx); err != nil || len(snaps)+len(forks) > 0 {
		x.Errorf("after removing all, List gives %v, %v, %v", snaps, forks, err)
	}
}
