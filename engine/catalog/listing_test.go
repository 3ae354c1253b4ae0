package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

func TestLaterListingReadsOnlyChangedRecords(t *testing.T) {
	c := open(t)
	for _, name := range []string{"a", "b", "c"} {
		if err := c.Create(newRecord(name)); err != nil {
			t.Fatal(err)
		}
	}
	list := c.ReadAll(nil)
	for deadline := time.Now().Add(time.Minute); ; { // until the change times of the files are past
		next := c.ReadAll(list)
		if len(next.Records) != 3 || len(next.Failures) > 0 {
			t.Fatalf("got %d records, want 3: %v", len(next.Records), next.Failures)
		}
		same := next.Records[0] == list.Records[0] && next.Records[1] == list.Records[1] && next.Records[2] == list.Records[2]
		list = next
		if same {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("records that do not change are read again and again")
		}
	}
	h, err := c.TryLock("b")
	if err != nil {
		t.Fatal(err)
	}
	h.Workspace = "/other"
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	h.Release()
	if h, err = c.TryLock("c"); err != nil {
		t.Fatal(err)
	}
	gone, err := h.Discard()
	if err != nil {
		t.Fatal(err)
	}
	gone.Release()
	next := c.ReadAll(list)
	if len(next.Records) != 2 || next.Records[0] != list.Records[0] || next.Records[1].Workspace != "/other" || len(next.Failures) > 0 {
		t.Errorf("got %d records, want a as it was and b changed: %v", len(next.Records), next.Failures)
	}
}

// TestEachOfManyRecordsIsReadAsOneAlone compares the records of a long list, which another decoder reads, with
// those that Get reads.
func TestEachOfManyRecordsIsReadAsOneAlone(t *testing.T) {
	c := open(t)
	for i := range 70 {
		r := newRecord(fmt.Sprintf("n%02d", i))
		r.Ephemeral = true // without syncs
		r.Workspace = fmt.Sprintf("/w/\"é\xff<%d>\u2028", i)
		r.Trees = []catalog.Tree{{Path: "/", Driver: "overlay", Base: r.NewSnapshot(), Fork: r.NewFork(), Taken: time.Unix(int64(i), 2)}}
		r.Policy = catalog.Policy{Network: "none", Env: []string{"A=1"}, Limits: catalog.Limits{TTL: time.Hour, Memory: 1 << 40}}
		for k := range i / 2 {
			r.Snapshots = append(r.Snapshots, catalog.NamedSnapshot{Name: fmt.Sprintf("s%d", k), Taken: time.Unix(1, 0), IDs: nil})
		}
		if err := c.Create(r); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"n01": `{"FORMAT": 1, "name": "n01", "Workspace": "/x", "unknown": [1, {"a": null}], "workspace": "/y"}`,
		"n02": `{"format": 1, "name": `,
		"n03": `{"format": 99, "name": "n03"}`,
		"n04": `{"format": 1, "created": "yesterday"}`,
	} {
		if err := os.WriteFile(filepath.Join(c.Path(name), "record.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	records, failures := c.List()
	if len(records) != 67 || len(failures) != 3 {
		t.Fatalf("got %d records and %d errors, want 67 and 3: %v", len(records), len(failures), failures)
	}
	for _, r := range records {
		want, err := c.Get(r.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := text(t, r), text(t, want); got != want {
			t.Errorf("%s in a list:\n%s\nalone:\n%s", r.Name, got, want)
		}
	}
	for i, kind := range []error{errs.ErrCorrupt, errs.ErrNotSupported, errs.ErrCorrupt} {
		_, want := c.Get(fmt.Sprintf("n%02d", i+2))
		if !errors.Is(failures[i], kind) || failures[i].Error() != want.Error() {
			t.Errorf("got %v, want %v", failures[i], want)
		}
	}
}

func text(t *testing.T, r *catalog.Record) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
