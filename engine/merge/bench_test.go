package merge_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/merge"
)

// BenchmarkTrees merges 100 files of 8 KB that one or both sides changed, and prints the
// ratio to reading and hashing all three versions.
func BenchmarkTrees(b *testing.B) {
	for name, both := range map[string]bool{"one-side": false, "both-sides": true} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			for n := range 100 {
				for i, root := range []string{w.base, w.mine, w.real} {
					var text []byte
					for line := range 250 {
						if i == 1 && line == 20 || i == 2 && both && line == 200 {
							text = fmt.Appendf(text, "side %d has changed this line\n", i)
						} else {
							text = fmt.Appendf(text, "file %d, line %d, as it was\n", n, line)
						}
					}
					path := filepath.Join(root, fmt.Sprintf("f%d", n))
					must(b, os.WriteFile(path, text, 0o644), setTime(path, began.AddDate(0, 0, i)))
				}
			}
			in := w.input()
			if !both {
				in.Real = nil
			}
			var ours, reading time.Duration
			for b.Loop() {
				b.StopTimer()
				fresh := w.input()
				in.Scratch = fresh.Scratch
				b.StartTimer()
				start := time.Now()
				r := w.trees(in)
				ours += time.Since(start)
				if len(r.Changes) != 100 || len(r.Conflicts) > 0 {
					b.Fatalf("%d changes, %d conflicts", len(r.Changes), len(r.Conflicts))
				}
				b.StopTimer()
				start = time.Now()
				hashThrice(b, w)
				reading += time.Since(start)
				b.StartTimer()
			}
			b.ReportMetric(float64(ours)/float64(reading), "x-hash")
		})
	}
}

func hashThrice(b *testing.B, w *world) {
	b.Helper()
	for _, root := range []string{w.base, w.mine, w.real} {
		for n := range 100 {
			f, err := os.Open(filepath.Join(root, fmt.Sprintf("f%d", n)))
			must(b, err)
			_, err = io.Copy(sha256.New(), f)
			must(b, err, f.Close())
		}
	}
}

// BenchmarkText merges edits at both ends of 10,000 lines.
func BenchmarkText(b *testing.B) {
	var texts [3][]byte
	for i := range texts {
		for line := range 10_000 {
			if i > 0 && line%1000 == 100*i {
				texts[i] = fmt.Appendf(texts[i], "side %d\n", i)
			} else {
				texts[i] = fmt.Appendf(texts[i], "line %d of many\n", line)
			}
		}
	}
	b.SetBytes(int64(len(texts[0])))
	for b.Loop() {
		if _, n := merge.Text(texts[0], texts[1], texts[2], names); n > 0 {
			b.Fatal("a conflict")
		}
	}
}

// BenchmarkTextUnlike merges two texts of 20,000 lines in random order, the worst case:
// it must end.
func BenchmarkTextUnlike(b *testing.B) {
	var texts [3][]byte
	for i := range texts {
		for line := range 20_000 {
			texts[i] = fmt.Appendf(texts[i], "%d\n", line*(7+4*i)%20_011)
		}
	}
	for b.Loop() {
		merge.Text(texts[0], texts[1], texts[2], names)
	}
}
