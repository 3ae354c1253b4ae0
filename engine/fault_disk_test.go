package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// fill leaves room for about n small files, and answers with how to give the
// space back.
func fill(t *testing.T, dir string, n int) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	var made []string
	for size := len(block); size >= 512; {
		name := filepath.Join(path, strings.Repeat("x", 1+len(made)%200)+string(rune('a'+len(made)/200)))
		if err := os.WriteFile(name, block[:size], 0o600); err != nil {
			size /= 2
		}
		made = append(made, name)
	}
	for i := range n {
		if err := os.Remove(made[len(made)-1-i]); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	}
}

func TestAFullDiskLosesNothing(t *testing.T) {
	treetest.NeedRoot(t)
	t.Run("overlay", func(t *testing.T) {
		state := treetest.Small(t, "ext4", 12<<20)
		treetest.Leaks(t)
		fullDisk(t, benchIn(t, treetest.Dir(t), state), state, "new", "snapshot", "rollback", "fork", "fork state", "exec", "keep")
	})
	if !later(t) {
		return
	}
	t.Run("btrfs", func(t *testing.T) {
		disk := treetest.Small(t, "btrfs", 24<<20)
		treetest.Leaks(t)
		b := benchIn(t, disk, disk)
		b.cramped = true
		fullDisk(t, b, disk, "new", "snapshot", "rollback")
	})
}

func fullDisk(t *testing.T, b *bench, disk string, ops ...string) {
	b.setStage()
	refused := 0
	rooms := []int{0, 4}
	if treetest.Long(t) {
		rooms = []int{0, 2, 4, 8}
	}
	for _, name := range ops {
		op := operations()[name]
		for _, room := range rooms {
			if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			empty := fill(t, disk, room)
			err := op.do(t.Context(), b)
			if err != nil {
				refused++
				if kind := errs.KindOf(err); !errors.Is(kind, errs.ErrNoSpace) {
					t.Errorf("%s on a full disk: %v (%v), want ErrNoSpace", name, err, kind)
				}
			} else if op.done != nil && op.clear != nil && !op.done(b) {
				t.Errorf("%s on a full disk is said to be done, but is not", name)
			}
			empty()
			if got := b.in("s", "cat f"); got != "2" && (name != "rollback" || got != "1") {
				t.Errorf("%s: f is %q in a sandbox that was there", name, got)
			}
			b.sound(name)
			b.restage(op, name+" on a full disk")
		}
		if err := op.do(t.Context(), b); err != nil {
			t.Errorf("%s with space again: %v", name, err)
		}
		b.restage(op, name+" with space again")
	}
	if refused < len(ops)/2 {
		t.Errorf("the disk was full only %d times", refused)
	}
	empty := fill(t, disk, 0)
	err := b.Remove(t.Context(), "s")
	empty()
	if b.cramped && errors.Is(err, errs.ErrNoSpace) { // btrfs with no room for metadata cannot even rename
		err = b.Remove(t.Context(), "s")
		if errors.Is(err, errs.ErrNotFound) {
			err = nil // what it held was left in the trash
		}
	}
	if err != nil {
		t.Errorf("removing, to make room: %v", err)
	}
	b.sound("removed on a full disk")
}
