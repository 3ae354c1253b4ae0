//go:build linux

package snapshottest

import (
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

func naming() []promise {
	return []promise{
		{name: "an id that could be a path is refused and makes nothing", test: refusesBadIDs},
		{name: "an id is given once", test: givesAnIDOnce},
		{name: "an unknown id is not found", test: findsNothing},
		{name: "capturing a missing tree, or a file, fails with its own error", test: oddTrees},
		{name: "the list is sorted and complete", test: lists},
		{name: "a snapshot and a fork may have the same id", test: sameID},
	}
}

func badIDs() []string {
	return []string{"", ".", "..", "../x", "a/b", "/x", "-x", "A", "a b", "a\nb", "a.b", "a\x00b", "ä", strings.Repeat("x", 65)}
}

func refusesBadIDs(x *workbench) {
	x.write("file", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	refused := func(err error, doing, id string) {
		x.Helper()
		if err == nil || errs.KindOf(err) == nil {
			x.Errorf("%s with the id %q gives %v", doing, id, err)
		}
	}
	for _, id := range badIDs() {
		_, err := x.b.Capture(x.Context(), x.place.Tree, snapshot.ID(id))
		refused(err, "capturing", id)
		_, err = x.b.Fork(x.Context(), "s1", snapshot.ForkID(id))
		refused(err, "forking", id)
		_, err = x.b.Fork(x.Context(), snapshot.ID(id), "f2")
		refused(err, "forking from a snapshot", id)
		_, err = x.b.Seal(x.Context(), "f1", snapshot.ID(id), snapshot.Idle)
		refused(err, "sealing", id)
		_, err = x.b.Lookup(x.Context(), snapshot.ID(id))
		refused(err, "looking up", id)
		_, err = x.b.LookupFork(x.Context(), snapshot.ForkID(id))
		refused(err, "looking up a fork", id)
		_ = x.b.Remove(x.Context(), snapshot.ID(id)) // the result does not matter, the list below does
		_ = x.b.RemoveFork(x.Context(), snapshot.ForkID(id))
	}
	x.lists([]snapshot.ID{"s1"}, []snapshot.ForkID{"f1"})
	x.has(x.snap("s1"), "file", "base", "after the refusals")
	x.has(x.view("f1"), "file", "base", "after the refusals")
	x.clean()
}

func (x *workbench) lists(snaps []snapshot.ID, forks []snapshot.ForkID) {
	x.Helper()
	s, f, err := x.b.List(x.Context())
	x.must(err)
	if !slices.Equal(s, snaps) || !slices.Equal(f, forks) {
		x.Errorf("List gives %v and %v, want %v and %v", s, f, snaps, forks)
	}
}

func givesAnIDOnce(x *workbench) {
	x.write("file", "first")
	x.capture("s1")
	x.fork("s1", "f1")
	x.in(x.view("f1"), func(dir string) { x.put(dir, "file", "fork") })
	_, err := x.b.Capture(x.Context(), x.place.Tree, "s1")
	x.fails(err, errs.ErrExists, "capturing under the same id")
	_, err = x.b.Fork(x.Context(), "s1", "f1")
	x.fails(err, errs.ErrExists, "forking under the same id")
	for _, use := range []snapshot.Use{snapshot.Idle, snapshot.InUse} {
		_, err = x.b.Seal(x.Context(), "f1", "s1", use)
		x.fails(err, errs.ErrExists, "sealing under the same id")
	}
	x.has(x.snap("s1"), "file", "first", "afterwards")
	x.has(x.view("f1"), "file", "fork", "afterwards")
	if f, err := x.b.LookupFork(x.Context(), "f1"); err != nil || f.Base != "s1" {
		x.Errorf("the fork is %+v, %v", f, err)
	}
	x.clean()
}

func findsNothing(x *workbench) {
	x.write("file", "")
	for range 2 { // before the first write, and after it
		_, err := x.b.Lookup(x.Context(), "no")
		x.fails(err, errs.ErrNotFound, "looking up an unknown snapshot")
		_, err = x.b.LookupFork(x.Context(), "no")
		x.fails(err, errs.ErrNotFound, "looking up an unknown fork")
		_, err = x.b.Fork(x.Context(), "no", "f1")
		x.fails(err, errs.ErrNotFound, "forking an unknown snapshot")
		_, err = x.b.Seal(x.Context(), "no", "s2", snapshot.Idle)
		x.fails(err, errs.ErrNotFound, "sealing an unknown fork")
		x.must(x.b.Remove(x.Context(), "no"))
		x.must(x.b.RemoveFork(x.Context(), "no"))
		x.lists(nil, nil)
		x.capture("s1")
		x.must(x.b.Remove(x.Context(), "s1"))
	}
	x.clean()
}

func oddTrees(x *workbench) {
	x.write("file", "")
	path := x.place.Tree.Path
	_, err := x.b.Capture(x.Context(), snapshot.Tree{Path: path + "/nothing"}, "s1")
	x.fails(err, errs.ErrNotFound, "capturing a missing tree")
	_, err = x.b.Capture(x.Context(), snapshot.Tree{Path: path + "/file"}, "s2")
	x.fails(err, errs.ErrNotSupported, "capturing a file")
	x.lists(nil, nil)
}

func lists(x *workbench) {
	x.write("file", "")
	x.lists(nil, nil)
	for _, id := range []snapshot.ID{"m", "z-1", "a", "0", "k"} {
		x.capture(id)
	}
	for _, id := range []snapshot.ForkID{"y", "b", "9"} {
		x.fork("m", id)
	}
	x.must(x.b.Remove(x.Context(), "k"))
	x.lists([]snapshot.ID{"0", "a", "m", "z-1"}, []snapshot.ForkID{"9", "b", "y"})
	x.reopen()
	x.lists([]snapshot.ID{"0", "a", "m", "z-1"}, []snapshot.ForkID{"9", "b", "y"})
	x.clean()
}

func sameID(x *workbench) {
	x.write("file", "base")
	x.capture("x")
	x.fork("x", "x")
	x.in(x.view("x"), func(dir string) { x.put(dir, "file", "fork") })
	x.must(x.b.Remove(x.Context(), "x"))
	x.has(x.view("x"), "file", "fork", "with the snapshot of the same id gone")
	x.lists(nil, []snapshot.ForkID{"x"})
	x.clean()
}
