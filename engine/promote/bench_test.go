package promote_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

// BenchmarkApply promotes 10,000 changed files of 3 KB in 100 directories. After each round
// it copies the same files with cp -a and one sync, which detects no newer changes and can
// be neither undone nor completed. The median of the rounds should be at most 1.5 times that
// of the copy, which btrfs does not reach (package bench has its limits):
//
//	go test ./engine/promote -run - -bench Apply -benchtime 5x
func BenchmarkApply(b *testing.B) {
	const most = 1.5
	for fs, top := range map[string]func() string{
		"ext4": func() string { return treetest.Ext4(b, 2<<30) }, "btrfs": func() string { return treetest.Btrfs(b) },
	} {
		b.Run(fs, func(b *testing.B) {
			w, changes := changed(b, top())
			var ours, copies []time.Duration
			o := options(w.frozen())
			o.KeepUndo = true // so that the next round finds the old tree
			for i := 0; b.Loop(); i++ {
				settle(b, w)
				start := time.Now()
				r, err := promote.Apply(b.Context(), w.target(), w.source(), changes, o)
				ours = append(ours, time.Since(start))
				must(b, err)
				undone, err := promote.Undo(b.Context(), w.state(), r.ID)
				must(b, err)
				o.Base.Known = undone.Stamps
				to := filepath.Join(w.top, fmt.Sprint("copy", i))
				settle(b, w)
				start = time.Now()
				if out, err := exec.Command("cp", "-a", w.sandbox.Name(), to).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				must(b, unix.Syncfs(int(w.base.Fd())))
				copies = append(copies, time.Since(start))
				must(b, os.RemoveAll(to))
			}
			slices.Sort(ours)
			slices.Sort(copies)
			ratio := float64(ours[len(ours)/2]) / float64(copies[len(copies)/2])
			b.ReportMetric(ratio, "x-copy")
			b.ReportMetric(float64(ours[len(ours)/2].Milliseconds()), "ms/10k")
			b.ReportMetric(float64(copies[len(copies)/2].Milliseconds()), "ms-copy/10k")
			if len(ours) >= 3 && ratio > most {
				b.Errorf("%.2f times the copy (%v), at most %.1f", ratio, copies[len(copies)/2], most)
			}
		})
	}
}

// changed creates a world of 10,000 files in 100 directories, all changed.
func changed(b *testing.B, top string) (*world, []diff.Change) {
	b.Helper()
	var before, after treetest.Script
	for d := range 100 {
		dir := fmt.Sprintf("d%02d", d)
		before = append(before, do(treetest.Mkdir, dir, ""))
		for n := range 100 {
			path := fmt.Sprintf("%s/f%02d", dir, n)
			before = append(before, file(path, 1, 3000))
			edited := file(path, 2, 3000)
			edited.Time += 60
			after = append(after, do(treetest.Unlink, path, ""), edited)
		}
	}
	w := newWorld(b, top, before, after)
	return w, w.changes(b, w.frozen())
}

// settle waits until the disk is idle.
func settle(b *testing.B, w *world) {
	b.Helper()
	must(b, unix.Syncfs(int(w.base.Fd())))
}
