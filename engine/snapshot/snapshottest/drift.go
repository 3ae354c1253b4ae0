//go:build linux

package snapshottest

import (
	"errors"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// detectsDrift is a test that every [snapshot.DriftDetector] must pass: it lists every change of the real
// tree. The test changes the tree after each of two captures, and lists the drift of both.
func detectsDrift(x *workbench) {
	for seed := range x.seeds() {
		if x.Failed() {
			return
		}
		y := x.at(seed)
		w := treetest.NewWriter(uint64(seed), y.powers())
		tree := y.place.Tree.Path
		y.play(w.Script(150), tree)
		y.capture("s1")
		y.play(w.Script(40), tree)
		y.drifted("s1", "since the capture")
		y.stamp("between the captures")
		y.capture("s2")
		y.play(w.Script(40), tree)
		y.drifted("s2", "since the second capture")
		y.drifted("s1", "since the first of two")
		y.clean()
	}
	x.unknown(as[snapshot.DriftDetector](x.b).DetectDrift(x.Context(), "no"), "the drift of an unknown snapshot")
}

// drifted checks that the backend under test lists each path at which the real tree differs from its snapshot
// id. what describes the state in failures.
func (x *workbench) drifted(id snapshot.ID, what string) {
	x.Helper()
	base, real := x.nodes(x.snap(id)), x.nodes(snapshot.View{Path: x.place.Tree.Path})
	x.covered(base, real, as[snapshot.DriftDetector](x.b).DetectDrift(x.Context(), id), what)
}

func detectsLittleDrift(x *workbench) {
	x.writeMany()
	time.Sleep(2 * racy) // a write at the instant of the capture may be listed
	x.capture("s1")
	f := x.fork("s1", "f1")
	x.in(f.View, func(dir string) { x.put(dir, "dir1/1", "the sandbox's own") })
	x.few(as[snapshot.DriftDetector](x.b).DetectDrift(x.Context(), "s1"), "an unchanged tree")
	x.clean()
}

// racy is two ticks of the slowest clock that filesystems use for timestamps. Two changes with more time
// between them have different ctimes.
const racy = 20 * time.Millisecond

// realInodes checks the backend's claim Facts.RealInodes: it compares the inode of a file in a frozen
// snapshot with that of the real file.
func realInodes(x *workbench) {
	if !x.b.Facts().Frozen {
		return // a live snapshot shows the real file
	}
	x.write("dir/file", "base")
	x.capture("s1")
	root := x.reach(x.snap("s1"))
	a, err := vfs.Lstat(int(root.Fd()), "dir/file")
	x.must(errors.Join(err, root.Close()))
	b, err := vfs.Lstat(-1, x.place.Tree.Path+"/dir/file")
	x.must(err)
	same := a.Ino == b.Ino && a.CTime == b.CTime && a.Size == b.Size
	if claimed := x.b.Facts().RealInodes; claimed != same {
		x.Errorf("the snapshot has the inode %d of %v, the real tree %d of %v; the facts say %v", a.Ino, a.CTime, b.Ino, b.CTime, claimed)
	}
	x.clean()
}
