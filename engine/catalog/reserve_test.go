package catalog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// TestReservedNumbersAreTakenOnceAndAreInTheRecord: whatever ends a snapshot early (an error, a kill, a power loss, an
// older snapfs), no id comes twice, and the record that is saved by then covers each id for a removal.
func TestReservedNumbersAreTakenOnceAndAreInTheRecord(t *testing.T) {
	c := open(t)
	r := newRecord("one")
	r.Trees = []catalog.Tree{{Path: "/"}, {Path: "/home"}}
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.Path("one"), "numbers")
	replace := func(old, by string) {
		t.Helper()
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte(strings.Replace(string(data), old, by, 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[snapshot.ID]bool{}
	for n, step := range []struct {
		what     string
		before   func()
		reserved bool // the ids come from a reserve, so that the record need not be written
		fails    bool
	}{
		{"the first snapshot", func() {}, false, false},
		{"the second", func() {}, true, true},
		{"one after a failed one", func() {}, false, false},
		{"another", func() {}, true, false},
		{"one after a power loss", func() { replace("-", "+") }, false, false},
		{"a torn file", func() { replace("000", "x00") }, false, false},
		{"an empty file", func() {
			if err := os.Truncate(file, 0); err != nil {
				t.Fatal(err)
			}
		}, false, false},
		{"the file of another sandbox", func() { replace(r.ID, "tother") }, false, false},
		{"one more", func() {}, true, false},
	} {
		step.before()
		h, err := c.Lock(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		saved := h.Next
		h.TakeReserved(len(h.Trees))
		ids := []snapshot.ID{h.NewSnapshot(), h.NewSnapshot()}
		if err := h.SaveNumbers(); err != nil {
			t.Fatal(err)
		}
		onDisk, err := c.Get("one")
		if err != nil {
			t.Fatal(err)
		}
		if reserved := onDisk.Next == saved; reserved != step.reserved {
			t.Errorf("%d, %s: reserved %v, want %v (%v)", n, step.what, reserved, step.reserved, ids)
		}
		var covered []snapshot.ID
		for id := range onDisk.Numbers() {
			covered = append(covered, id)
		}
		for _, id := range ids {
			if seen[id] || !slices.Contains(covered, id) {
				t.Errorf("%d, %s: the id %s came before (%v), or the record does not cover it: %v", n, step.what, id, seen[id], covered)
			}
			seen[id] = true
		}
		if !step.fails {
			err = h.SaveReserving(len(h.Trees))
		}
		h.Release()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAChangedRecordIsSavedDespiteReservedNumbers: only a record without other new ids may wait.
func TestAChangedRecordIsSavedDespiteReservedNumbers(t *testing.T) {
	c := open(t)
	if err := c.Create(newRecord("one")); err != nil {
		t.Fatal(err)
	}
	h, err := c.Lock(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	if err := h.SaveReserving(1); err != nil {
		t.Fatal(err)
	}
	h.TakeReserved(1)
	h.NewSnapshot()
	next := h.NewFork()
	if err := h.SaveNumbers(); err != nil {
		t.Fatal(err)
	}
	onDisk, err := c.Get("one")
	if err != nil {
		t.Fatal(err)
	}
	for _, fork := range onDisk.Numbers() {
		if fork == next {
			return
		}
	}
	t.Errorf("the record covers %d numbers, and not %s", onDisk.Next, next)
}

// TestAPowerLossAfterSnapshotsThatDidNotWaitForTheDisk: whatever older record it leaves since the last one that is on
// stable storage, that record covers each id for a removal, and no id comes twice.
func TestAPowerLossAfterSnapshotsThatDidNotWaitForTheDisk(t *testing.T) {
	c := open(t)
	r := newRecord("one")
	r.Trees = []catalog.Tree{{Path: "/"}, {Path: "/home"}}
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	read := func(file string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(c.Path("one"), file))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.Path("one"), file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen, stable, waits, left := map[snapshot.ID]bool{}, r.Next, 0, []string{}
	for n := range 300 {
		if n%70 == 69 { // the boot, the first word, is another one
			write("record.json", left[n%len(left)])
			write("numbers", "+"+read("numbers"))
		}
		h, err := c.Lock(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		h.TakeReserved(len(h.Trees))
		before := h.Next
		ids := []snapshot.ID{h.NewSnapshot(), h.NewSnapshot()}
		if err := h.SaveNumbers(); err != nil {
			t.Fatal(err)
		}
		if h.Next != before {
			stable, left = h.Next, nil // it had to wait
		}
		covered := map[snapshot.ID]bool{}
		for i := range stable {
			covered[snapshot.ID(fmt.Sprintf("%s-s%d", h.ID, i+1))] = true
		}
		for _, id := range ids {
			if seen[id] || !covered[id] {
				t.Fatalf("%d: the id %s came before (%v), or a record that a power loss may leave does not cover it: %d", n, id, seen[id], stable)
			}
			seen[id] = true
		}
		before = h.Next
		name := fmt.Sprintf("c%d", n)
		h.Snapshots = append(h.Snapshots, catalog.NamedSnapshot{Name: name, IDs: ids})
		if err := h.SaveReservingOrdered(len(h.Trees)); err != nil {
			t.Fatal(err)
		}
		if h.Next != before {
			stable, left, waits = h.Next, nil, waits+1
		}
		h.Release()
		left = append(left, read("record.json"))
		if now, err := c.Get("one"); err != nil {
			t.Fatal(err)
		} else if _, there := now.Snapshot(name); !there {
			t.Fatalf("%d: the snapshot is not in the record", n)
		}
	}
	if waits > 10 {
		t.Errorf("%d of 300 snapshots waited for the disk", waits)
	}
}

// TestASnapshotKeepsTheReservedNumbersOfCheckpoints: a snapshot that waits for the disk, between checkpoints that do
// not, takes its ids from the same reserve and leaves the rest. So the numbers of a sandbox, which a removal goes through
// one by one, do not grow faster than its snapshots.
func TestASnapshotKeepsTheReservedNumbersOfCheckpoints(t *testing.T) {
	c := open(t)
	r := newRecord("one")
	r.Trees = []catalog.Tree{{Path: "/"}, {Path: "/home"}}
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	seen := map[snapshot.ID]bool{}
	const pairs = 30
	for n := range 2 * pairs {
		h, err := c.Lock(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		h.TakeReserved(len(h.Trees))
		ids := []snapshot.ID{h.NewSnapshot(), h.NewSnapshot()}
		err = h.SaveNumbers()
		h.Snapshots = append(h.Snapshots, catalog.NamedSnapshot{Name: fmt.Sprintf("c%d", n), IDs: ids})
		switch {
		case err != nil:
		case n%6 == 1:
			if err = h.Save(); err == nil { // as a start of processes may
				err = h.SaveReserving(len(h.Trees))
			}
		case n%2 == 1:
			err = h.SaveReserving(len(h.Trees))
		default:
			err = h.SaveReservingOrdered(len(h.Trees))
		}
		h.Release()
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("%d: the id %s came before", n, id)
			}
			seen[id] = true
		}
	}
	now, err := c.Get("one")
	if err != nil {
		t.Fatal(err)
	}
	if unused := now.Next - len(seen); unused > 64*len(r.Trees) {
		t.Errorf("of %d numbers %d are unused, want at most one reserve of %d", now.Next, unused, 64*len(r.Trees))
	}
}
