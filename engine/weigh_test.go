package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// hollow makes a file that takes room, and no time to copy.
func (b *bench) hollow(name string, size int64) {
	b.t.Helper()
	f, err := os.Create(filepath.Join(b.workspace, name))
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestWhatThereIsNoRoomToCopyIsNotBegun(t *testing.T) {
	treetest.NeedRoot(t) // for the disks
	b := benchIn(t, treetest.Small(t, "ext4", 128<<20), treetest.Small(t, "ext4", 64<<20))
	b.hollow("large", 40<<20)
	req := b.request()
	req.Name, req.Backend = "p", "plain"
	_, err := b.New(t.Context(), req)
	if !errors.Is(err, errs.ErrNoSpace) || !strings.Contains(err.Error(), " free") {
		t.Errorf("new: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(b.state, "data/plain/snapshots")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a copy was begun: %v", err)
	}
	if err := os.Truncate(filepath.Join(b.workspace, "large"), 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := b.New(t.Context(), req); err != nil {
		t.Errorf("with room: %v", err)
	}
	b.removeLater("p")
}

func TestWhatTakesLongToCopyIsToldBefore(t *testing.T) {
	treetest.NeedRoot(t) // for the disks
	b := benchIn(t, treetest.Small(t, "ext4", 1<<30), treetest.Small(t, "ext4", 1<<30))
	e, said := b.reopen()
	b.Engine = e
	req := b.request()
	req.Backend = "plain"
	told := func(name string) bool {
		req.Name = name
		if _, err := b.New(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		b.removeLater(name)
		return strings.Contains(strings.Join(*said, "\n"), "the backend plain copies all of ")
	}
	if told("light") {
		t.Errorf("told of next to nothing: %q", *said)
	}
	b.hollow("heavy", 300<<20)
	if !told("heavy") {
		t.Errorf("not told: %q", *said)
	}
}
