package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// An ext4 with inodes of 128 bytes stores times in seconds: what the user writes within a second of snapfs's last look
// has the same change time, inode and size.
func TestAnEditOnAFilesystemThatStoresSecondsIsNotLost(t *testing.T) {
	treetest.NeedRoot(t)
	for when, first := range map[string]func(b *bench){
		"after a promotion": func(b *bench) {
			b.new("s")
			b.in("s", "printf mine1 > f")
			untilNextSecond()
			if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"before a start": func(b *bench) {
			untilNextSecond()
			b.write("f", "base2")
			b.new("s")
		},
	} {
		t.Run(when, func(t *testing.T) {
			d, state := newDisk(t, "-I", "128"), treetest.Dir(t)
			treetest.Leaks(t, state)
			t.Cleanup(func() { d.mount(false) })
			b := &bench{t: t, workspace: filepath.Join(d.dir, "work"), state: filepath.Join(state, "state")}
			if err := os.Mkdir(b.workspace, 0o755); err != nil {
				t.Fatal(err)
			}
			b.Engine, _ = b.reopen()
			b.write("f", "base1")
			untilNextSecond()
			untilNextSecond() // the first start finds a file of an earlier second
			first(b)
			if when == "before a start" {
				b.in("s", "printf mine2 > f")
			}
			b.write("f", "user!")
			if when == "after a promotion" {
				b.in("s", "printf mine2 > f")
			}
			_, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{})
			if !errors.Is(err, errs.ErrConflict) {
				t.Errorf("got %v", err)
			}
			if text := b.read("f"); text != "user!" {
				t.Errorf("the real file holds %q", text)
			}
			if err := b.Remove(t.Context(), "s"); err != nil {
				t.Error(err)
			}
		})
	}
}

// untilNextSecond waits for the beginning of a second.
func untilNextSecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second + 20*time.Millisecond).Sub(now))
}
