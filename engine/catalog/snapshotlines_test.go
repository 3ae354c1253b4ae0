package catalog_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// withSnapshots returns the record of a sandbox with n named snapshots of three trees.
func withSnapshots(n int) *catalog.Record {
	r := newRecord("deep")
	for i := range n {
		m := catalog.NamedSnapshot{Name: fmt.Sprint("m", i), Taken: time.Unix(int64(i), 123456789).UTC(), IDs: []snapshot.ID{r.NewSnapshot(), r.NewSnapshot(), r.NewSnapshot()}}
		if i > 0 {
			m.Parent = r.Snapshots[i-1].Name
		}
		r.Snapshots = append(r.Snapshots, m)
	}
	return r
}

// stored creates the record r in a new catalogue and returns the catalogue and the path of the record's file.
func stored(t *testing.T, r *catalog.Record) (*catalog.Catalog, string) {
	t.Helper()
	c := open(t)
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	return c, filepath.Join(c.Path(r.Name), "record.json")
}

// asJSON returns what package json makes of a record.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSnapshotsAreReadAsWritten with every field and with text that JSON escapes, by the catalogue and by package
// json alike.
func TestSnapshotsAreReadAsWritten(t *testing.T) {
	r := withSnapshots(3)
	r.At = "m2"
	base := &catalog.Base{Refreshed: 1, Trees: []catalog.TreeBase{{Base: "b", Taken: time.Unix(5, 0).UTC(), Frozen: true}}}
	r.Snapshots = append(r.Snapshots, []catalog.NamedSnapshot{
		{Name: "based", Base: base},
		{Name: "sent", Sent: "x\"y\\z"},
		{Name: "mounted", MountPoints: []string{"a\n  ]", "<b>", "é"}},
		{Name: "why", Why: &catalog.Why{}},
		{Name: "none", IDs: []snapshot.ID{}},
		{Name: "quo\"ted", Parent: "m\n1", IDs: []snapshot.ID{"a\"],\"b"}},
		{Name: "local", Taken: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 5400)), IDs: []snapshot.ID{"a"}},
	}...)
	c, path := stored(t, r)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Get("deep")
	if err != nil {
		t.Fatal(err)
	}
	var byJSON catalog.Record
	if err := json.Unmarshal(text, &byJSON); err != nil {
		t.Fatalf("the record is no JSON: %v\n%s", err, text)
	}
	want := asJSON(t, r)
	if diff := cmp.Diff(want, asJSON(t, got)); diff != "" {
		t.Errorf("the catalogue reads another record than was written:\n%s", diff)
	}
	if diff := cmp.Diff(want, asJSON(t, &byJSON)); diff != "" {
		t.Errorf("package json reads another record than was written:\n%s", diff)
	}
	if n := strings.Count(string(text), "\n    {\"name\":"); n != len(r.Snapshots) {
		t.Errorf("%d snapshots have a line each, want %d:\n%s", n, len(r.Snapshots), text)
	}
}

// TestEachFieldOfASnapshotIsWritten fails for a new field of NamedSnapshot. appendSnapshot must then write the
// field, or leave snapshots that have it to package json, and TestSnapshotsAreReadAsWritten must set it.
func TestEachFieldOfASnapshotIsWritten(t *testing.T) {
	var got []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[catalog.NamedSnapshot]()) {
		got = append(got, f.Name)
	}
	known := []string{"Name", "Taken", "Parent", "IDs", "Base", "Sent", "MountPoints", "Why"}
	if diff := cmp.Diff(known, got); diff != "" {
		t.Errorf("appendSnapshot does not know these fields:\n%s", diff)
	}
}

// TestARecordOfAnotherFormIsRead: as earlier versions wrote it, as one line, and damaged.
func TestARecordOfAnotherFormIsRead(t *testing.T) {
	r := withSnapshots(3)
	c, path := stored(t, r)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(text), ",\n") // the line with the checksum, which these forms do not have
	if !strings.HasPrefix(first, "{\n  \"sum\": ") {
		t.Fatalf("the record begins with %q", first)
	}
	text = []byte("{\n" + rest)
	want := asJSON(t, r)
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]string{"indented": want, "one line": string(line), "spaced": strings.ReplaceAll(string(text), `"taken":`, `"taken": `)} {
		if err := os.WriteFile(path, []byte(form), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get("deep")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, asJSON(t, got)); diff != "" {
			t.Errorf("%s: another record is read:\n%s", name, diff)
		}
	}
	for _, cut := range []string{`"},`, `{"name":"m1"`, "\n  ],", `"]`} {
		damaged := strings.Replace(string(text), cut, "", 1)
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get("deep"); err == nil && json.Unmarshal([]byte(damaged), &catalog.Record{}) != nil {
			t.Errorf("a record without %q is read as %+v", cut, got)
		}
	}
}

// TestReadingARecordCostsHardlyMoreForManySnapshots: the memory allocations of a read, which package json makes
// for each part of each snapshot, do not grow with the snapshots.
func TestReadingARecordCostsHardlyMoreForManySnapshots(t *testing.T) {
	cost := func(n int) float64 {
		c, _ := stored(t, withSnapshots(n))
		return testing.AllocsPerRun(5, func() {
			if r, err := c.Get("deep"); err != nil || len(r.Snapshots) != n {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
	if few, many := cost(10), cost(1000); many > few+100 {
		t.Errorf("reading a record makes %.0f allocations with ten snapshots, and %.0f with a thousand", few, many)
	}
}
