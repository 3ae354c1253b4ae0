//go:build linux

package snapshottest

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// metersSnapshots tests that [snapshot.Meter] returns what the removal of snapshots frees: all their own
// data where nothing else has it, and nothing of what a fork shares. Where a fork is a copy that shares nothing, each
// snapshot holds a whole tree.
func metersSnapshots(x *workbench) {
	const size = 1 << 20
	x.write("large", noise(size))
	x.capture("s1")
	m := as[snapshot.Meter](x.b)
	if _, err := m.MeasureExclusive(x.Context(), nil); errors.Is(err, errs.ErrNotSupported) && os.Geteuid() != 0 {
		x.clean()
		return
	}
	before := x.freeSpace()
	x.fork("s1", "f1")
	copies := before-x.freeSpace() > size/2
	ids := []snapshot.ID{"k1", "", "k2", "no"}
	for _, id := range []snapshot.ID{"k1", "k2"} {
		x.in(x.view("f1"), func(dir string) { x.put(dir, "mine", string(id)+noise(size)) })
		x.seal("f1", id, snapshot.Idle)
	}
	x.must(x.b.RemoveFork(x.Context(), "f1"))
	x.must(x.b.Sweep(x.Context()))
	own := snapshot.Bytes(2 * size) // what each snapshot alone has written, together
	if copies {
		own *= 2
	}
	held := x.held(m, ids)
	if held[0] < own || held[0] > own+size || held[1] != held[2] || held[3] != 0 {
		x.Errorf("two snapshots with %v of their own, and two that do not exist, hold %v", own, held)
	}
	x.fork("k2", "f2")
	shared := x.held(m, ids)
	if !copies && (shared[2] > size/4 || shared[0] > held[0]-size) {
		x.Errorf("what a fork shares is counted: %v, without the fork %v", shared, held)
	}
	if copies && !slices.Equal(shared, held) {
		x.Errorf("a fork that shares nothing changes what snapshots hold: %v, without the fork %v", shared, held)
	}
	x.frees(shared[0]-shared[2], func() { x.must(x.b.Remove(x.Context(), "k1")) })
	x.must(x.b.RemoveFork(x.Context(), "f2"))
	x.must(x.b.Sweep(x.Context()))
	held = x.held(m, ids[2:])
	if held[0] < size {
		x.Errorf("the snapshot that is left holds %v", held)
	}
	x.frees(held[0], func() { x.must(x.b.Remove(x.Context(), "k2")) })
	x.clean()
}

// held returns what [snapshot.Meter.MeasureExclusive] returns for these snapshots, after everything
// unsaved has been written.
func (x *workbench) held(m snapshot.Meter, ids []snapshot.ID) []snapshot.Bytes {
	x.Helper()
	x.freeSpace()
	held, err := m.MeasureExclusive(x.Context(), ids)
	x.must(err)
	if len(held) != len(ids) {
		x.Fatalf("%d sizes of %d snapshots", len(held), len(ids))
	}
	return held
}

// frees requires that remove, followed by a sweep, frees the disk space want, give or take a quarter of a MiB.
func (x *workbench) frees(want snapshot.Bytes, remove func()) {
	x.Helper()
	const slack = 1 << 18
	before := x.freeSpace()
	remove()
	x.must(x.b.Sweep(x.Context()))
	freed := func() int64 { return x.freeSpace() - before }
	for end := time.Now().Add(time.Minute); freed() < int64(want)-slack && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond) // the filesystem frees space in the background
	}
	if n := freed(); n < int64(want)-slack || n > int64(want)+slack {
		x.Errorf("a removal freed %v, not %v", snapshot.Bytes(n), want)
	}
}
