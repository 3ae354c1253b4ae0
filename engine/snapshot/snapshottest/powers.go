//go:build linux

package snapshottest

import (
	"errors"
	"iter"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func powers() []promise {
	return []promise{
		{name: "the changes of a fork are listed completely", test: listsChanges, offered: is[snapshot.ChangeLister]},
		{name: "the changes between two snapshots are listed completely", test: listsChangesBetween, offered: is[snapshot.ChangeLister]},
		{name: "an unchanged fork lists almost no changes", test: listsFewChanges, offered: is[snapshot.ChangeLister]},
		{name: "a change since a seal is reported, and no other", test: comparesSealed, offered: is[snapshot.SealComparer]},
		{name: "the drift of the real tree is listed completely", test: detectsDrift, offered: is[snapshot.DriftDetector]},
		{name: "an unchanged real tree lists almost no drift", test: detectsLittleDrift, offered: is[snapshot.DriftDetector]},
		{name: "the originals of files that a fork changes are preserved", test: originalsStay, offered: is[snapshot.OriginalStore], storage: true},
		{name: "a fork's usage counts only data that its base lacks", test: meters, offered: is[snapshot.ChangeLister], storage: true},
		{name: "what only snapshots hold is what their removal frees", test: metersSnapshots, offered: is[snapshot.Meter], storage: true, small: true},
		{name: "a sweep frees the space of removed forks", storage: true, small: true, test: sweeps},
		{name: "the death of a fork's server is reported, and synced data survives", test: reportsServerDeath, offered: is[snapshot.ServerMonitor], storage: true},
		{name: "reads of files that changed since a live base are reported", test: noticesReads, offered: is[snapshot.ServerMonitor]},
		{name: "damage is found, and repaired on request", test: checks, offered: is[snapshot.Checker]},
		{name: "a fork in use is rolled back", test: returns, offered: is[snapshot.Returner]},
		{name: "ready-made forks behave like others", test: preforks, offered: is[snapshot.Preforker]},
		{name: "a clone is a capture and a fork of it", test: clones, offered: is[snapshot.Cloner]},
		{name: "a sent snapshot is received equal, wherever the connection breaks", test: sends, offered: is[snapshot.Sender]},
	}
}

// nodes returns the metadata and content hash of each file in a view, a snapshot or a fork of the backend, as
// text by path, for comparing two views.
func (x *workbench) nodes(v snapshot.View) map[string]string {
	x.Helper()
	root := x.reach(v)
	defer root.Close()
	var text strings.Builder
	x.must(treetest.WriteManifest(&text, root, treetest.Options{NoLinks: true}))
	nodes := map[string]string{}
	for line := range strings.Lines(text.String()) {
		name, node, _ := strings.Cut(line, "\t")
		p, err := strconv.Unquote(name)
		x.must(err)
		nodes[p] = node
	}
	return nodes
}

// covered checks that touched, the candidates that a backend lists, include each difference between the trees
// a and b, given as by nodes. A listed directory covers its set of names, and a name that only one side has
// covers its subtree. what describes the list in failures.
func (x *workbench) covered(a, b map[string]string, touched iter.Seq2[snapshot.Candidate, error], what string) {
	x.Helper()
	at, whole := map[string]bool{}, map[string]bool{}
	for t, err := range touched {
		if errors.Is(err, errs.ErrNotSupported) && os.Geteuid() != 0 {
			return // the caller then walks both trees
		}
		x.must(err)
		at[t.Path] = true
		if t.Tree {
			whole[t.Path] = true
		}
	}
	within := func(p string) bool {
		for ; p != "."; p = path.Dir(p) {
			if whole[p] {
				return true
			}
		}
		return whole["."]
	}
	missed := map[string]bool{}
	check := func(p string, other map[string]string) {
		for other[p] == "" && p != "." && other[path.Dir(p)] == "" {
			p = path.Dir(p)
		}
		oneSided := other[p] == "" && at[path.Dir(p)]
		if !at[p] && !oneSided && !within(p) && !missed[p] {
			missed[p] = true
			x.Errorf("%s: %q differs, and no candidate covers it", what, p)
		}
	}
	differences := 0
	for p, node := range a {
		if b[p] != node {
			differences++
			check(p, b)
		}
	}
	for p := range b {
		if _, has := a[p]; !has {
			differences++
			check(p, a)
		}
	}
	if differences == 0 {
		x.Errorf("%s: the script changed nothing", what)
	}
}

// changeAndSeal executes a random script, made from seed, in a fork, seals it, executes another script, and
// calls check with the workbench y that it used and the three states: base, sealed snapshot, and fork, as by
// nodes.
func changeAndSeal(x *workbench, seed int, check func(y *workbench, base, sealed, now map[string]string)) {
	x.Helper()
	y := x.at(seed)
	w := treetest.NewWriter(uint64(seed), y.powers())
	y.play(w.Script(150), y.place.Tree.Path)
	w.Freeze()
	y.capture("s1")
	y.fork("s1", "f1")
	for _, id := range []snapshot.ID{"s2", ""} {
		root := y.reach(y.view("f1"))
		w = y.playBoth(w, 40, root, "")
		y.must(root.Close())
		if id != "" {
			base, now := y.nodes(y.snap("s1")), y.nodes(y.view("f1"))
			if t, ok := y.b.(snapshot.ChangeLister); ok {
				y.covered(base, now, t.ListChanges(y.Context(), "s1", "f1"), "before the seal")
			}
			y.seal("f1", id, snapshot.Idle)
			w.Freeze()
		}
	}
	check(y, y.nodes(y.snap("s1")), y.nodes(y.snap("s2")), y.nodes(y.view("f1")))
	y.clean()
}

func listsChanges(x *workbench) {
	for seed := range x.seeds() {
		if x.Failed() {
			return
		}
		changeAndSeal(x, seed, func(y *workbench, base, sealed, now map[string]string) {
			t := as[snapshot.ChangeLister](y.b)
			y.covered(sealed, now, t.ListChanges(y.Context(), "s2", "f1"), "since the seal")
			y.covered(base, now, t.ListChanges(y.Context(), "s1", "f1"), "since the capture")
		})
	}
	x.unknown(as[snapshot.ChangeLister](x.b).ListChanges(x.Context(), "no", "no"), "the changes of an unknown fork")
}

// unknown checks that list, a backend's list of the changes of a snapshot or fork that does not exist, yields
// an error. what describes it in failures.
func (x *workbench) unknown(list iter.Seq2[snapshot.Candidate, error], what string) {
	for _, err := range list {
		if err == nil {
			x.Error(what + " were listed")
		} else if !errors.Is(err, errs.ErrNotSupported) {
			x.fails(err, errs.ErrNotFound, "listing "+what)
		}
	}
}

func listsChangesBetween(x *workbench) {
	for seed := range x.seeds() {
		if x.Failed() {
			return
		}
		changeAndSeal(x, seed, func(y *workbench, base, sealed, _ map[string]string) {
			t := as[snapshot.ChangeLister](y.b)
			y.covered(base, sealed, t.ListChangesBetween(y.Context(), "s1", "s2"), "from capture to seal")
			y.covered(sealed, base, t.ListChangesBetween(y.Context(), "s2", "s1"), "from seal to capture")
		})
	}
}

func listsFewChanges(x *workbench) {
	x.writeMany()
	x.capture("s1")
	x.fork("s1", "f1")
	x.few(as[snapshot.ChangeLister](x.b).ListChanges(x.Context(), "s1", "f1"), "an unchanged fork")
	x.clean()
}

func (x *workbench) writeMany() {
	for i := range 200 {
		x.write("dir"+strconv.Itoa(i%10)+"/"+strconv.Itoa(i), "base")
	}
}

// few checks that list, a backend's list of changes where nothing has changed, is almost empty: no whole
// directory, and at most 5 paths. what describes it in failures.
func (x *workbench) few(list iter.Seq2[snapshot.Candidate, error], what string) {
	n := 0
	for t, err := range list {
		if errors.Is(err, errs.ErrNotSupported) && os.Geteuid() != 0 {
			break
		}
		x.must(err)
		if n++; t.Tree {
			x.Errorf("of %s the whole directory %q is listed", what, t.Path)
		}
	}
	if n > 5 {
		x.Errorf("%d paths of %s are listed as changed", n, what)
	}
}

func meters(x *workbench) {
	const size = 2 << 20
	x.write("large", noise(size))
	x.capture("s1")
	x.fork("s1", "f1")
	m := as[snapshot.ChangeLister](x.b)
	fresh, err := m.Usage(x.Context(), "f1")
	if errors.Is(err, errs.ErrNotSupported) && os.Geteuid() != 0 {
		x.clean()
		return
	}
	x.must(err)
	x.in(x.view("f1"), func(dir string) { x.put(dir, "mine", noise(size)) })
	used, err := m.Usage(x.Context(), "f1")
	x.must(err)
	if fresh > size/4 || used-fresh < size*9/10 || used-fresh > size*2 {
		x.Errorf("a fresh fork uses %v, and with a file of %v more %v", fresh, snapshot.Bytes(size), used)
	}
	_, err = m.Usage(x.Context(), "no")
	x.fails(err, errs.ErrNotFound, "measuring an unknown fork")
	x.clean()
}

func sweeps(x *workbench) {
	const size = 1 << 20
	x.write("file", "base")
	x.capture("s1")
	before := x.freeSpace()
	for _, id := range []snapshot.ForkID{"f1", "f2", "f3", "f4"} {
		x.in(x.fork("s1", id).View, func(dir string) { x.put(dir, "mine", noise(size)) })
	}
	if used := before - x.freeSpace(); used < 3*size {
		x.Fatalf("four files of a MiB take %v", snapshot.Bytes(used))
	}
	for _, id := range []snapshot.ForkID{"f1", "f2", "f3", "f4"} {
		x.must(x.b.RemoveFork(x.Context(), id))
	}
	for _, err := range atOnce(2, func(int) error { return x.b.Sweep(x.Context()) }) {
		x.must(err)
	}
	deadline := time.Now().Add(40 * time.Second) // the filesystem frees space in the background
	for before-x.freeSpace() > size && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	if rest := before - x.freeSpace(); rest > size {
		x.Errorf("%v are not free again", snapshot.Bytes(rest))
	}
	x.clean()
}

func preforks(x *workbench) {
	x.write("file", "base")
	x.capture("s1")
	s := as[snapshot.Preforker](x.b)
	for _, err := range atOnce(2, func(int) error { return s.Prefork(x.Context(), "s1", 2) }) {
		x.must(err)
	}
	x.lists([]snapshot.ID{"s1"}, nil)
	for _, id := range []snapshot.ForkID{"f1", "f2", "f3"} { // more than were made in advance
		x.has(x.fork("s1", id).View, "file", "base", string(id))
		x.in(x.view(id), func(dir string) { x.put(dir, "file", string(id)) })
	}
	for _, id := range []snapshot.ForkID{"f1", "f2", "f3"} {
		x.has(x.view(id), "file", string(id), string(id))
	}
	x.fails(s.Prefork(x.Context(), "no", 1), errs.ErrNotFound, "making forks of an unknown snapshot in advance")
	x.must(s.Prefork(x.Context(), "s1", 2))
	x.clean()
}

func clones(x *workbench) {
	x.write("file", "base")
	c := as[snapshot.Cloner](x.b)
	s, f, err := c.Clone(x.Context(), x.place.Tree, "s1", "f1")
	x.must(err)
	if s.ID != "s1" || f.ID != "f1" || f.Base != s.ID || s.Tree != x.place.Tree {
		x.Errorf("the clone describes itself as %+v and %+v", s, f)
	}
	x.in(x.view("f1"), func(dir string) { x.put(dir, "file", "fork") })
	x.has(x.snap("s1"), "file", "base", "the snapshot")
	x.has(x.view("f1"), "file", "fork", "the fork")
	x.stamp("again")
	_, _, err = c.Clone(x.Context(), x.place.Tree, "s2", "f1")
	x.fails(err, errs.ErrExists, "cloning to an existing fork's id")
	x.has(x.view("f1"), "file", "fork", "the fork, afterwards")
	x.clean()
}
