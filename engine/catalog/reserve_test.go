package catalog_test

import (
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
