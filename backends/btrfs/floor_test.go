//go:build linux

package btrfs

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// BenchmarkKernelInALargeTree reports the processor time that the kernel alone takes to snapshot a subvolume, and to
// sync a hundred changed files of the snapshot, in ten directories or spread over the whole tree. No command of snapfs
// on btrfs can take less. docs/design/0006-drift.md compares the commands with it.
func BenchmarkKernelInALargeTree(b *testing.B) {
	const perDir, changes = 100, 100
	for _, files := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d-files", files), func(b *testing.B) {
			_, tree := fixture(b)
			name := func(file int) string { return fmt.Sprintf("d%d/f%d", file/perDir, file%perDir) }
			for file := range files {
				if file%perDir == 0 {
					mkdir(b, fmt.Sprintf("%s/d%d", tree.Path, file/perDir))
				}
				write(b, tree.Path+"/"+name(file), "content")
			}
			flushed(b, tree.Path)
			src, err := os.Open(tree.Path)
			if err != nil {
				b.Fatal(err)
			}
			defer src.Close()
			var snapshot, near, spread []time.Duration
			for i := 0; b.Loop(); i++ {
				for j, round := range []struct {
					apart int // each changed file is so many files after the last
					took  *[]time.Duration
				}{{perDir / 10, &near}, {files / changes, &spread}} {
					copied := fmt.Sprintf("%s/../copy%d-%d", tree.Path, i, j)
					mkdir(b, copied)
					dir, err := os.Open(copied)
					if err != nil {
						b.Fatal(err)
					}
					snapshot = append(snapshot, cost(b, func() error {
						return btrfs.Snapshot(int(src.Fd()), int(dir.Fd()), "tree", false)
					}))
					for change := range changes {
						write(b, copied+"/tree/"+name(change*round.apart), "changed")
					}
					*round.took = append(*round.took, cost(b, func() error { return vfs.SyncFS(int(dir.Fd())) }))
					dir.Close()
				}
			}
			for what, took := range map[string][]time.Duration{"snapshot": snapshot, "sync-10-dirs": near, "sync-spread": spread} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, what+"-cpu-ms")
			}
		})
	}
}

// cost returns the processor time that do takes in this process, the kernel's work for it included.
func cost(b *testing.B, do func() error) time.Duration {
	before := treetest.ProcessorTime(b)
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return treetest.ProcessorTime(b) - before
}
