package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

func open(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newRecord(name string) *catalog.Record {
	return &catalog.Record{ID: catalog.NewID(), Name: name, State: catalog.Ready, Created: time.Now(), Workspace: "/w"}
}

func TestRecordIsReadAsWritten(t *testing.T) {
	c := open(t)
	want := newRecord("one")
	want.Trees = []catalog.Tree{{Path: "/", Driver: "overlay", Base: want.NewSnapshot(), Fork: want.NewFork(), Taken: time.Unix(1, 2)}}
	if err := c.Create(want); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get("one")
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != want.ID || got.Next != 2 || got.Trees[0].Base != want.Trees[0].Base || !got.Trees[0].Taken.Equal(time.Unix(1, 2)) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNameIsClaimedOnce(t *testing.T) {
	c := open(t)
	var wg sync.WaitGroup
	won := make(chan int, 50)
	for i := range 50 {
		wg.Go(func() {
			switch err := c.Create(newRecord("same")); {
			case err == nil:
				won <- i
			case !errors.Is(err, errs.ErrExists):
				t.Errorf("got %v, want ErrExists", err)
			}
		})
	}
	wg.Wait()
	if n := len(won); n != 1 {
		t.Errorf("%d of 50 got the name", n)
	}
}

func TestHostileNamesAreRefusedAndTouchNothing(t *testing.T) {
	c := open(t)
	for _, name := range []string{"", ".", "..", "../x", "a/b", "-rf", ".hidden", "a\nb", "a\x00b", "ä", "\x1b[31m", strings.Repeat("a", 300)} {
		err := c.Create(newRecord(name))
		if !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: got %v, want errs.ErrInvalid", name, err)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x1b\n\x00") {
			t.Errorf("%q: its error carries control characters: %q", name, err)
		}
		if _, err := c.Lock(context.Background(), name); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("holding %q: got %v, want errs.ErrInvalid", name, err)
		}
	}
	records, failures := c.List()
	if len(records)+len(failures) != 0 {
		t.Errorf("left behind: %v %v", records, failures)
	}
}

func TestChangesOfOneSandboxAreNotLost(t *testing.T) {
	c := open(t)
	if err := c.Create(newRecord("n")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			h, err := c.Lock(context.Background(), "n")
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Release()
			h.NewSnapshot()
			if err := h.Save(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if r, err := c.Get("n"); err != nil || r.Next != 20 {
		t.Errorf("%+v, %v: want 20 numbers taken", r, err)
	}
}

func TestADiscardedSandboxIsGoneByNameAndFoundInTheTrash(t *testing.T) {
	c := open(t)
	r := newRecord("gone")
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	h, err := c.Lock(context.Background(), "gone")
	if err != nil {
		t.Fatal(err)
	}
	d, err := h.Discard()
	if d.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get("gone"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if err := c.Create(newRecord("gone")); err != nil {
		t.Errorf("the name is not free: %v", err)
	}
	found, failures := c.Trash()
	if len(failures) != 0 || len(found) != 1 || found[0].ID != r.ID {
		t.Fatalf("trash holds %v, %v", found, failures)
	}
	closed := filepath.Join(found[0].Path, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	if err := found[0].Forget(); err != nil {
		t.Error(err)
	}
	if found, _ := c.Trash(); len(found) != 0 {
		t.Errorf("still there: %v", found)
	}
}

func TestUnreadableRecordIsReportedBesideTheOthers(t *testing.T) {
	c := open(t)
	for _, n := range []string{"a", "b", "c"} {
		if err := c.Create(newRecord(n)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(c.Path(name), "record.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", `{"format": 99}`)
	write("b", `{half`)
	records, failures := c.List()
	if len(records) != 1 || records[0].Name != "c" {
		t.Errorf("got %v, want c", records)
	}
	if err := errors.Join(failures...); !errors.Is(err, errs.ErrNotSupported) || !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

func TestNewerStateDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "format"), []byte(fmt.Sprint(catalog.Format+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.Open(dir); !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("something was written: %v", entries)
	}
}

func TestPlacesSurviveAnyPath(t *testing.T) {
	c := open(t)
	want := catalog.Location{Driver: "btrfs", Path: "/mnt/100%/a b:c\n%2f"}
	for range 2 {
		if err := c.AddLocation(want, want.Path); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Locations(); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("got %v, %v", got, err)
	}
}

func BenchmarkCreateEphemeral(b *testing.B) {
	c, err := catalog.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		r := newRecord(fmt.Sprint("n", i))
		r.Ephemeral = true
		if err := c.Create(r); err != nil {
			b.Fatal(err)
		}
	}
}

// A backup may have left out the directories that were empty.
func TestEmptyDirectoriesThatABackupLeftOutAreMadeAgain(t *testing.T) {
	c := open(t)
	r := newRecord("kept")
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"active", "trash", "spare"} {
		if err := os.RemoveAll(filepath.Join(c.Dir(), d)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := catalog.Open(c.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if stale, err := c.Stale(true); err != nil || len(stale) > 0 {
		t.Errorf("operations in progress: %v, %v", stale, err)
	}
	i, err := c.Begin(catalog.Removing, r.Name, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Lock(t.Context(), r.Name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := h.Discard()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	if err := errors.Join(d.Forget(), i.End()); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(c.Dir(), "sandboxes")); err != nil {
		t.Fatal(err)
	}
	if c, err = catalog.Open(c.Dir()); err != nil {
		t.Fatal(err)
	}
	if _, failures := c.List(); len(failures) == 0 {
		t.Error("without the directory of the sandboxes, a garbage collection takes all their data for unused")
	}
}
