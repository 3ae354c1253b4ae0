package plain_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) (snapshot.Backend, snapshot.Place) {
	t.Helper()
	place := snapshottest.OnDisk(t)
	b, err := plain.Open(t.Context(), place)
	must(t, err)
	return b, place
}

func sweep(t testing.TB, b snapshot.Backend) {
	t.Helper()
	must(t, b.Sweep(t.Context()))
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// during calls do at the first n steps of this name.
func during(t testing.TB, step string, n int, do func()) context.Context {
	return treetest.WithFaults(t.Context(), func(s string) error {
		if s == step && n > 0 {
			n--
			do()
		}
		return nil
	})
}

func TestAFileChangedDuringTheCopyIsCopiedAgain(t *testing.T) {
	b, place := open(t)
	file := filepath.Join(place.Tree.Path, "file")
	write(t, file, "old")
	ctx := during(t, "set the mode", 1, func() { write(t, file, "new and longer") })
	s, err := b.Capture(ctx, place.Tree, "s1")
	must(t, err)
	if got, err := os.ReadFile(s.View.Path + "/file"); err != nil || string(got) != "new and longer" {
		t.Errorf("the copy holds %q, %v", got, err)
	}
}

func TestAFileThatKeepsChangingIsBusy(t *testing.T) {
	b, place := open(t)
	file := filepath.Join(place.Tree.Path, "restless")
	write(t, file, "")
	ctx := during(t, "set the mode", 1<<30, func() { write(t, file, "again") })
	_, err := b.Capture(ctx, place.Tree, "s1")
	var e *errs.Error
	if !errors.Is(err, errs.ErrBusy) || !errors.As(err, &e) || e.Path != file {
		t.Errorf("Capture returns %v", err)
	}
}

func TestAFileDeletedDuringTheCopyIsLeftOut(t *testing.T) {
	b, place := open(t)
	for _, name := range []string{"a", "b", "c/d", "e"} {
		write(t, filepath.Join(place.Tree.Path, name), "")
	}
	ctx := during(t, "make a file", 1, func() {
		for _, name := range []string{"a", "b", "c", "e"} {
			must(t, os.RemoveAll(filepath.Join(place.Tree.Path, name)))
		}
	})
	_, err := b.Capture(ctx, place.Tree, "s1")
	must(t, err)
}

func TestAForkOfASnapshotRemovedMeanwhileFails(t *testing.T) {
	b, place := open(t)
	write(t, filepath.Join(place.Tree.Path, "a"), "")
	write(t, filepath.Join(place.Tree.Path, "b"), "")
	_, err := b.Capture(t.Context(), place.Tree, "s1")
	must(t, err)
	ctx := during(t, "make a file", 1, func() {
		must(t, b.Remove(t.Context(), "s1"))
		sweep(t, b)
	})
	if _, err := b.Fork(ctx, "s1", "f1"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("Fork returns %v", err)
	}
}

func TestTheBackendsDirectoryIsNotCopied(t *testing.T) {
	place := snapshottest.OnDisk(t)
	place.Dir = filepath.Join(place.Tree.Path, "home/state")
	write(t, filepath.Join(place.Tree.Path, "home/file"), "mine")
	b, err := plain.Open(t.Context(), place)
	must(t, err)
	for _, id := range []snapshot.ID{"s1", "s2"} {
		s, err := b.Capture(t.Context(), place.Tree, id)
		must(t, err)
		if _, err := os.Lstat(s.View.Path + "/home/state"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the copy contains the backend's directory: %v", err)
		}
		if _, err := os.Lstat(s.View.Path + "/home/file"); err != nil {
			t.Error(err)
		}
	}
}

func TestATreeDeeperThanTheDescriptorLimitIsCopied(t *testing.T) {
	b, place := open(t)
	const levels = 3000
	dir, err := os.Open(place.Tree.Path)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(int(dir.Fd()), "d", 0o755))
		next, err := vfs.OpenDir(int(dir.Fd()), "d")
		must(t, err)
		dir.Close()
		dir = next
	}
	must(t, unix.Mknodat(int(dir.Fd()), "last", unix.S_IFREG|0o600, 0))
	dir.Close()
	before := descriptors(t)
	s, err := b.Capture(t.Context(), place.Tree, "s1")
	must(t, err)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were open before, and %d are now", before, after)
	}
	root := treetest.Open(t, s.View.Path)
	at, err := vfs.OpenBeneath(int(root.Fd()), strings.Repeat("d/", levels)+"last", unix.O_RDONLY, 0)
	must(t, err)
	at.Close()
	must(t, b.Remove(t.Context(), "s1"))
	sweep(t, b)
	if left, err := os.ReadDir(filepath.Join(place.Dir, "trash")); err != nil || len(left) > 0 {
		t.Errorf("the trash holds %v, %v", left, err)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

func TestAnUnreadableMarkIsCorruptAndStays(t *testing.T) {
	b, place := open(t)
	s, err := b.Capture(t.Context(), place.Tree, "s1")
	must(t, err)
	file := filepath.Join(filepath.Dir(s.View.Path), "mark")
	for _, text := range []string{"", "snapfs plain 2\n", "snapfs plain 1\nsnapshot s1\n"} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := b.Lookup(t.Context(), "s1"); !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("with the mark %q Lookup returns %v", text, err)
		}
		if err := b.Remove(t.Context(), "s1"); !errors.Is(err, errs.ErrDenied) {
			t.Errorf("with the mark %q Remove returns %v", text, err)
		}
		if ids, _, err := b.List(t.Context()); err != nil || len(ids) != 1 {
			t.Errorf("with the mark %q List returns %v, %v", text, ids, err)
		}
	}
	if _, err := os.Stat(s.View.Path); err != nil {
		t.Error(err)
	}
}

func TestAMarkOfAnotherEntryIsRefused(t *testing.T) {
	b, place := open(t)
	s, err := b.Capture(t.Context(), place.Tree, "s1")
	must(t, err)
	home := filepath.Dir(s.View.Path)
	must(t, os.Rename(home, filepath.Join(filepath.Dir(home), "s2")))
	if _, err := b.Lookup(t.Context(), "s2"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("Lookup returns %v", err)
	}
	if ids, _, err := b.List(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("List returns %v, %v", ids, err)
	}
	if err := b.Remove(t.Context(), "s2"); !errors.Is(err, errs.ErrDenied) {
		t.Errorf("Remove returns %v", err)
	}
}
