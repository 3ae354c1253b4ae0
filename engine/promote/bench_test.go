package promote_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

// BenchmarkApply carries 1,000 changed files of 3 KB and prints the ratio to a
// copy and rename of each with one sync at the end, which can neither be taken
// back nor notices newer work.
func BenchmarkApply(b *testing.B) {
	for fs, top := range map[string]func() string{
		"ext4": func() string { return treetest.Dir(b) }, "btrfs": func() string { return treetest.Btrfs(b) },
	} {
		b.Run(fs, func(b *testing.B) {
			dir := top()
			var ours, copies time.Duration
			for i := 0; b.Loop(); i++ {
				var before, after treetest.Script
				for n := range 1000 {
					before = append(before, file(fmt.Sprintf("f%d", n), 1, 3000))
					after = append(after, do(treetest.Unlink, fmt.Sprintf("f%d", n), ""), file(fmt.Sprintf("f%d", n), 2, 3000))
				}
				sub := filepath.Join(dir, fmt.Sprint(i))
				must(b, os.Mkdir(sub, 0o755))
				w := newWorld(b, sub, before, after)
				changes := w.changes(b, w.frozen())
				start := time.Now()
				_, err := promote.Apply(b.Context(), w.target(), w.source(), changes, options(w.frozen()))
				ours += time.Since(start)
				must(b, err)
				start = time.Now()
				for _, c := range changes {
					if c.Path != "." {
						copyAndRename(b, w.sandbox.Name(), w.base.Name(), c.Path)
					}
				}
				must(b, unix.Syncfs(int(w.base.Fd())))
				copies += time.Since(start)
			}
			b.ReportMetric(float64(ours)/float64(copies), "x-copy")
			b.ReportMetric(float64(ours.Milliseconds())/float64(b.N), "ms/1000")
		})
	}
}

func copyAndRename(b *testing.B, from, to, path string) {
	b.Helper()
	src, err := os.Open(filepath.Join(from, path))
	must(b, err)
	defer src.Close()
	dst, err := os.Create(filepath.Join(to, path+".tmp"))
	must(b, err)
	defer dst.Close()
	_, err = io.Copy(dst, src)
	must(b, err)
	must(b, os.Rename(dst.Name(), filepath.Join(to, path)))
}
