//go:build linux

package btrfs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// The benchmarks of this file report ratios of times measured side by side, because absolute times
// depend on the disk.

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func mkdir(b *testing.B, path string) {
	b.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		b.Fatal(err)
	}
}

func flushed(b *testing.B, path string) {
	b.Helper()
	f, err := os.Open(path)
	if err == nil {
		err = vfs.SyncFS(int(f.Fd()))
		f.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
}

func timed(b *testing.B, do func() error) time.Duration {
	began := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// BenchmarkCloneBesideIoctl compares a clone of a changed tree, and one that uses a ready-made
// fork, with a single snapshot ioctl.
func BenchmarkCloneBesideIoctl(b *testing.B) {
	be, tree := fixture(b)
	src, err := os.Open(tree.Path)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	mkdir(b, be.top+"/bare")
	var bare, changed, stocked, idle, quiet []time.Duration
	together := 0
	for i := 0; b.Loop(); i++ {
		id := strconv.Itoa(i)
		write(b, tree.Path+"/file", id)
		mkdir(b, be.top+"/bare/"+id)
		dir, err := os.Open(be.top + "/bare/" + id)
		if err != nil {
			b.Fatal(err)
		}
		bare = append(bare, timed(b, func() error {
			return btrfs.Snapshot(int(src.Fd()), int(dir.Fd()), "tree", true)
		}))
		dir.Close()
		write(b, tree.Path+"/file", id+"+")
		var base snapshot.Snapshot
		changed = append(changed, timed(b, func() error {
			base, _, err = be.Clone(b.Context(), tree, snapshot.ID("s"+id), snapshot.ForkID("f"+id))
			return err
		}))
		if r, err := be.enter(); err == nil {
			_, x, _ := r.load(snapshots, "s"+id)
			_, y, _ := r.load(forks, "f"+id)
			if x.Born == y.Born {
				together++
			}
			r.close()
		}
		if err := be.Prefork(b.Context(), base.ID, 3); err != nil {
			b.Fatal(err)
		}
		stocked = append(stocked, timed(b, func() error {
			_, _, err := be.Clone(b.Context(), tree, snapshot.ID("u"+id), snapshot.ForkID("g"+id))
			return err
		}))
		flushed(b, tree.Path)
		idle = append(idle, timed(b, func() error {
			_, _, err := be.Clone(b.Context(), tree, snapshot.ID("v"+id), snapshot.ForkID("i"+id))
			return err
		}))
		quiet = append(quiet, timed(b, func() error {
			_, err := be.Fork(b.Context(), base.ID, snapshot.ForkID("h"+id))
			return err
		}))
	}
	one := median(bare)
	b.ReportMetric(float64(median(changed))/float64(one), "clone/ioctl")
	b.ReportMetric(float64(median(stocked))/float64(one), "stocked/ioctl")
	b.ReportMetric(float64(median(idle))/float64(one), "idle-stocked/ioctl")
	b.ReportMetric(float64(median(quiet).Microseconds()), "stocked-fork-µs")
	b.ReportMetric(float64(one.Microseconds()), "ioctl-µs")
	b.ReportMetric(float64(together)/float64(len(changed)), "in-one-commit")
}

// BenchmarkTouchedBesideWalk lists 100 changes, and none, among 100,000 files.
func BenchmarkTouchedBesideWalk(b *testing.B) {
	be, tree := fixture(b)
	for d := range 200 {
		dir := fmt.Sprintf("%s/d%d", tree.Path, d)
		mkdir(b, dir)
		for f := range 500 {
			write(b, fmt.Sprintf("%s/f%d", dir, f), "content")
		}
	}
	_, f := clone(b, be, tree, "1")
	touch := func() int {
		n := 0
		for _, err := range be.ListChanges(b.Context(), "s1", "f1") {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		return n
	}
	touch() // syncs the tree
	none := timed(b, func() error { touch(); return nil })
	for i := range 100 {
		write(b, fmt.Sprintf("%s/d%d/f%d", f.View.Path, i*2, i), "changed")
	}
	flushed(b, tree.Path)
	var find, walk []time.Duration
	for b.Loop() {
		find = append(find, timed(b, func() error {
			if n := touch(); n < 100 {
				return fmt.Errorf("%d candidates", n)
			}
			return nil
		}))
		walk = append(walk, timed(b, func() error {
			return filepath.WalkDir(f.View.Path, func(_ string, d fs.DirEntry, err error) error {
				if err == nil {
					_, err = d.Info()
				}
				return err
			})
		}))
	}
	b.ReportMetric(float64(median(find))/float64(median(walk)), "touched/walk")
	b.ReportMetric(float64(median(find).Microseconds())/1000, "touched-ms")
	b.ReportMetric(float64(none.Microseconds())/1000, "untouched-ms")
}

// BenchmarkDriftOfALargeTree lists ten changes, and none, among 100,000 files of the real tree,
// beside a walk of it.
func BenchmarkDriftOfALargeTree(b *testing.B) {
	be, tree := fixture(b)
	for d := range 200 {
		dir := fmt.Sprintf("%s/d%d", tree.Path, d)
		mkdir(b, dir)
		for f := range 500 {
			write(b, fmt.Sprintf("%s/f%d", dir, f), "content")
		}
	}
	clone(b, be, tree, "1")
	drift := func(want int) func() error {
		return func() error {
			n := 0
			for _, err := range be.DetectDrift(b.Context(), "s1") {
				if err != nil {
					return err
				}
				n++
			}
			if n != want {
				return fmt.Errorf("%d places, want %d", n, want)
			}
			return nil
		}
	}
	var none, some, walk []time.Duration
	for range 20 {
		none = append(none, timed(b, drift(0)))
	}
	for i := range 10 {
		write(b, fmt.Sprintf("%s/d%d/f%d", tree.Path, i*2, i), "changed")
	}
	flushed(b, tree.Path)
	for b.Loop() {
		some = append(some, timed(b, drift(10)))
		walk = append(walk, timed(b, func() error {
			return filepath.WalkDir(tree.Path, func(_ string, d fs.DirEntry, err error) error {
				if err == nil {
					_, err = d.Info()
				}
				return err
			})
		}))
	}
	b.ReportMetric(float64(median(some).Microseconds())/1000, "ten-changed-ms")
	b.ReportMetric(float64(median(none).Microseconds())/1000, "unchanged-ms")
	b.ReportMetric(float64(median(some))/float64(median(walk)), "drift/walk")
}

// BenchmarkManyForksAtOnce compares a hundred concurrent forks with one.
func BenchmarkManyForksAtOnce(b *testing.B) {
	be, tree := fixture(b)
	s, _ := clone(b, be, tree, "1")
	var one, hundred []time.Duration
	for i := 0; b.Loop(); i++ {
		one = append(one, timed(b, func() error {
			_, err := be.Fork(b.Context(), s.ID, snapshot.ForkID(fmt.Sprintf("a%d", i)))
			return err
		}))
		hundred = append(hundred, timed(b, func() error {
			var wait sync.WaitGroup
			for k := range 100 {
				wait.Go(func() {
					if _, err := be.Fork(b.Context(), s.ID, snapshot.ForkID(fmt.Sprintf("b%d-%d", i, k))); err != nil {
						b.Error(err)
					}
				})
			}
			wait.Wait()
			return nil
		}))
	}
	b.ReportMetric(float64(median(hundred))/float64(median(one)), "hundred/one")
	b.ReportMetric(float64(median(hundred).Milliseconds()), "hundred-ms")
}
