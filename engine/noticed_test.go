package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// TestWhatHadMovedWhenItWasReadIsTold, and to who follows without anything more that moves.
func TestWhatHadMovedWhenItWasReadIsTold(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	for _, backend := range []string{"fusecow", "fusecow-overlay"} {
		t.Run(backend, func(t *testing.T) {
			b := newBench(t)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"read", "unread", "still"} {
				b.write(name, "base")
			}
			tick()
			req := b.request()
			req.Name, req.Backend = "s", backend
			_, err := b.New(t.Context(), req)
			must(err)
			b.removeLater("s")
			tick()
			b.write("read", "real")
			b.write("unread", "real")
			busy, err := b.Supervise.Exec(t.Context(), "s", isolate.Command{Args: []string{"/bin/sleep", "60"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace})
			must(err)
			read := func() map[string]bool {
				t.Helper()
				r, err := b.Compare.DriftOf(t.Context(), "s")
				must(err)
				return readIn(r)
			}
			if got := read(); len(got) != 2 || got["read"] || got["unread"] {
				t.Errorf("before anything is read: %v", got)
			}
			told, done := make(chan map[string]bool, 100), make(chan error)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			enough := errors.New("enough")
			go func() {
				done <- b.Supervise.FollowDrift(ctx, "s", func(r compare.DriftReport) error {
					got := readIn(r)
					if told <- got; got["read"] {
						return enough
					}
					return nil
				})
			}()
			<-told
			b.in("s", "cat read still")
			if got := read(); len(got) != 2 || !got["read"] || got["unread"] {
				t.Errorf("after one is read: %v", got)
			}
			if err := <-done; !errors.Is(err, enough) {
				t.Errorf("who follows is not told: %v", err)
			}
			outside := filepath.Join(filepath.Dir(b.workspace), "outside")
			must(os.WriteFile(outside, []byte("real"), 0o600))
			if b.in("s", "cat "+outside); !read()["outside"] {
				t.Error("what was read outside the workspace is not told")
			}
			must(busy.Close())
		})
	}
}

// readIn are the names of files that have moved, and whether each was read.
func readIn(r compare.DriftReport) map[string]bool {
	all := map[string]bool{}
	for _, p := range r.Paths {
		if st, err := os.Stat(p.Path); err == nil && st.Mode().IsRegular() {
			all[filepath.Base(p.Path)] = p.Read
		}
	}
	return all
}
