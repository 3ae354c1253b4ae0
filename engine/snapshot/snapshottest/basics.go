//go:build linux

package snapshottest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

func basics() []promise {
	return []promise{
		{name: "a snapshot and its fork show the tree", test: showsTheTree},
		{name: "a frozen base ignores later writes, a live one shows them", test: frozenOrLive, storage: true},
		{name: "the time of a capture divides earlier changes from later ones", test: takenDivides, storage: true},
		{name: "forks are independent of each other, their base and the real tree", test: forksAreIndependent},
		{name: "sealing an idle fork keeps its content and the fork", test: func(x *workbench) { seals(x, snapshot.Idle) }, storage: true},
		{name: "sealing a fork in use keeps its content and its view", test: func(x *workbench) { seals(x, snapshot.InUse) }, storage: true},
		{
			name: "a file of which a fork changed the metadata alone has its content without the real one", test: metadataKeepsContent,
			offered: func(b snapshot.Backend) bool { return b.Facts().Frozen || b.Facts().PartsLinks },
		},
		{name: "any snapshot can be forked again in any order", test: backAndForth},
		{name: "a reopened backend has the same snapshots and forks", test: reopens},
		{name: "an unchanged file has the same inode in every view", test: inodesStay, offered: keepsInodes},
		{name: "a hundred and twenty seals of one fork", test: func(x *workbench) { chain(x, false) }},
		{name: "a hundred and twenty forks of forks", test: func(x *workbench) { chain(x, true) }},
	}
}

func showsTheTree(x *workbench) {
	x.write("dir/file", "one")
	x.must(os.Symlink("dir", filepath.Join(x.place.Tree.Path, "link")))
	s := x.capture("s1")
	if s.ID != "s1" || s.Tree != x.place.Tree || s.Frozen != x.b.Facts().Frozen {
		x.Errorf("the capture describes itself as %+v", s)
	}
	f := x.fork("s1", "f1")
	for what, v := range map[string]snapshot.View{"snapshot": s.View, "fork": f.View} {
		x.has(v, "dir/file", "one", what)
		x.has(v, "link/file", "one", what)
	}
	x.clean()
}

func frozenOrLive(x *workbench) {
	x.write("file", "old")
	x.capture("s1")
	x.write("file", "new")
	x.write("later", "new")
	want := map[bool]string{true: "old", false: "new"}[x.b.Facts().Frozen]
	f := x.fork("s1", "f1")
	x.has(f.View, "file", want, "a fork of a capture from before a write")
	later := map[bool]string{true: "", false: "new"}[x.b.Facts().Frozen]
	x.has(f.View, "later", later, "a fork of a capture from before a file was made")
	x.clean()
}

func takenDivides(x *workbench) {
	const tick = 20 * time.Millisecond // more than the resolution of timestamps
	x.write("earlier", "")
	time.Sleep(tick)
	s := x.capture("s1")
	time.Sleep(tick)
	x.write("later", "")
	changed := func(name string) time.Time {
		st, err := vfs.Lstat(-1, filepath.Join(x.place.Tree.Path, name))
		x.must(err)
		return st.CTime.Time()
	}
	if t := changed("earlier"); t.After(s.Taken) {
		x.Errorf("changed before, at %v, the capture is of %v", t, s.Taken)
	}
	if t := changed("later"); !t.After(s.Taken) {
		x.Errorf("changed after, at %v, the capture is of %v", t, s.Taken)
	}
	x.clean()
}

func forksAreIndependent(x *workbench) {
	x.write("file", "base")
	x.write("dir/gone", "base")
	s := x.capture("s1")
	a, b := x.fork("s1", "a"), x.fork("s1", "b")
	x.in(a.View, func(dir string) {
		x.put(dir, "file", "a")
		x.put(dir, "more", "a")
		x.must(os.RemoveAll(dir + "/dir"))
	})
	for what, v := range map[string]snapshot.View{
		"the snapshot": s.View, "the other fork": b.View, "a later fork": x.fork("s1", "c").View,
		"the real tree": {Path: x.place.Tree.Path},
	} {
		x.has(v, "file", "base", what)
		x.has(v, "more", "", what)
		x.has(v, "dir/gone", "base", what)
	}
	x.has(a.View, "file", "a", "the fork itself")
	x.has(a.View, "more", "a", "the fork itself")
	x.has(a.View, "dir/gone", "", "the fork itself")
	x.clean()
}

// seals is a test that every backend must pass: a sealed snapshot has the fork's content at the instant of
// the seal, and the fork can be written on. A fork in use is written through its old view, an idle one
// through its new view.
func seals(x *workbench, use snapshot.Use) {
	x.write("file", "base")
	x.write("gone", "base")
	x.capture("s1")
	open := x.reach(x.fork("s1", "f1").View)
	dir := vfs.FDPath(open) + "/."
	x.put(dir, "file", "first")
	x.must(os.Remove(dir + "/gone"))
	if use == snapshot.Idle {
		x.must(open.Close())
	}
	s := x.seal("f1", "s2", use)
	f, err := x.b.LookupFork(x.Context(), "f1")
	x.must(err)
	if s.ID != "s2" || s.Tree != x.place.Tree || f.Base != "s2" {
		x.Errorf("the snapshot describes itself as %+v, the fork as %+v", s, f)
	}
	if use == snapshot.Idle {
		open = x.reach(f.View)
		dir = vfs.FDPath(open) + "/."
	}
	x.put(dir, "file", "second")
	x.must(open.Close())
	for _, c := range []struct {
		what string
		v    snapshot.View
		text string
	}{
		{"the sealed snapshot", x.snap("s2"), "first"},
		{"a fork of it", x.fork("s2", "f2").View, "first"},
		{"the fork that was sealed", x.view("f1"), "second"},
		{"the first base", x.snap("s1"), "base"},
	} {
		x.has(c.v, "file", c.text, c.what)
		x.has(c.v, "gone", map[bool]string{true: "base"}[c.text == "base"], c.what)
	}
	x.clean()
}

func backAndForth(x *workbench) {
	x.write("file", "s0")
	x.capture("s0")
	x.fork("s0", "f")
	for i := 1; i <= 3; i++ {
		id := fmt.Sprintf("s%d", i)
		x.in(x.view("f"), func(dir string) {
			x.put(dir, "file", id)
			x.must(os.RemoveAll(fmt.Sprintf("%s/only-s%d", dir, i-1)))
			x.put(dir, "only-"+id, id)
		})
		x.seal("f", snapshot.ID(id), snapshot.Idle)
	}
	for n, back := range []string{"s1", "s3", "s0", "s2", "s2", "s3", "s1", "s0"} {
		x.must(x.b.RemoveFork(x.Context(), "f"))
		f := x.fork(snapshot.ID(back), "f")
		when := fmt.Sprintf("turn %d, back to %s", n, back)
		x.has(f.View, "file", back, when)
		for i := 1; i <= 3; i++ {
			id := fmt.Sprintf("s%d", i)
			x.has(f.View, "only-"+id, map[bool]string{true: id}[id == back], when)
		}
		x.in(f.View, func(dir string) { x.put(dir, "file", "spoilt") })
	}
	x.clean()
}

func reopens(x *workbench) {
	x.write("file", "base")
	s := x.capture("s1")
	x.fork("s1", "f1")
	x.in(x.view("f1"), func(dir string) { x.put(dir, "file", "mine") })
	f, err := x.b.LookupFork(x.Context(), "f1")
	x.must(err)
	x.reopen()
	again, err := x.b.Lookup(x.Context(), "s1")
	x.must(err)
	if !again.Taken.Equal(s.Taken) || again.Tree != s.Tree || again.Frozen != s.Frozen {
		x.Errorf("the snapshot was %+v and is %+v", s, again)
	}
	fork, err := x.b.LookupFork(x.Context(), "f1")
	x.must(err)
	if fork.Base != f.Base {
		x.Errorf("the fork's base was %s and is %s", f.Base, fork.Base)
	}
	x.has(again.View, "file", "base", "the snapshot")
	x.has(fork.View, "file", "mine", "the fork")
	x.clean()
}

// chain is a test that every backend must pass: it seals 120 times, or 28 in make test, with a change each
// time. It seals one fork again and again, or, with anew, a new fork of each snapshot. Late seals must not
// cost many times as much as early ones.
func chain(x *workbench, anew bool) {
	length := treetest.Budget(x, 28, 120)
	x.write("file", "0")
	x.capture("s0")
	x.fork("s0", "f0")
	fork := snapshot.ForkID("f0")
	var took []time.Duration
	one := func() {
		began, i := time.Now(), len(took)+1
		if anew && i > 1 {
			fork = snapshot.ForkID(fmt.Sprintf("f%d", i))
			x.fork(snapshot.ID(fmt.Sprintf("s%d", i-1)), fork)
		}
		x.in(x.view(fork), func(dir string) {
			x.put(dir, "file", fmt.Sprint(i))
			x.put(dir, fmt.Sprintf("file-%d", i%8), fmt.Sprint(i))
		})
		x.seal(fork, snapshot.ID(fmt.Sprintf("s%d", i)), snapshot.Idle)
		took = append(took, time.Since(began))
	}
	for range length {
		one()
	}
	for _, i := range []int{1, 7, length / 2, length - 1, length} {
		v := x.snap(snapshot.ID(fmt.Sprintf("s%d", i)))
		x.has(v, "file", fmt.Sprint(i), "along the chain")
		x.has(v, fmt.Sprintf("file-%d", i%8), fmt.Sprint(i), "along the chain")
	}
	early, late := slices.Min(took[:length/4]), slices.Min(took[length-length/4:]) // the minimum, because other tests load the machine
	tooLong := func() bool { return late > 8*early+20*time.Millisecond }
	for range 60 { // a load passes, what grows stays
		if tooLong() {
			one()
			late = min(late, took[len(took)-1])
		}
	}
	if tooLong() {
		x.Errorf("the last seals take %v, the first ones %v", late, early)
	}
	x.clean()
}
