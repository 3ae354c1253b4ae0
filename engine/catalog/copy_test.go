package catalog_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// storedText returns a catalogue with a lasting sandbox that has named snapshots, the path of its record, and the
// record's text on disk.
func storedText(t *testing.T) (c *catalog.Catalog, path string, text []byte, want string) {
	t.Helper()
	r := withSnapshots(2)
	r.Ephemeral = false
	c, path = stored(t, r)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return c, path, text, asJSON(t, r)
}

// A byte that flips in a record never changes what is read: the record is damaged then, or the byte means nothing.
func TestAFlippedByteInARecordIsNoticed(t *testing.T) {
	c, path, text, want := storedText(t)
	damaged := 0
	for i := range text {
		for _, bit := range []byte{0x01, 0x20} {
			flipped := bytes.Clone(text)
			flipped[i] ^= bit
			if err := os.WriteFile(path, flipped, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := c.Get("deep")
			switch {
			case errors.Is(err, errs.ErrCorrupt):
				damaged++
			case err != nil:
				t.Fatalf("byte %d: %v", i, err)
			default:
				if diff := cmp.Diff(want, asJSON(t, got)); diff != "" {
					t.Fatalf("byte %d: another record is read:\n%s", i, diff)
				}
			}
		}
	}
	if damaged < 2*len(text)-100 {
		t.Errorf("%d of %d flips are noticed", damaged, 2*len(text))
	}
}

// What a power loss or a bad disk makes of a record, its copy mends, and the damaged file is put aside.
func TestADamagedRecordIsRestoredFromItsCopy(t *testing.T) {
	for name, damage := range map[string]func(text []byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"cut":   func(text []byte) []byte { return text[:len(text)/2] },
		"zeros": func(text []byte) []byte { return make([]byte, len(text)) },
		"valid": func(text []byte) []byte {
			return bytes.Replace(text, []byte(`"name": "deep"`), []byte(`"name": "peep"`), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, path, text, _ := storedText(t)
			before, err := c.Get("deep")
			if err != nil {
				t.Fatal(err)
			}
			bad := damage(text)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Get("deep"); !errors.Is(err, errs.ErrCorrupt) || len(errs.HintsOf(err)) != 2 || errs.HintsOf(err)[0] != "snapfs doctor deep --repair" {
				t.Fatalf("it is read: %v, hints %q", err, errs.HintsOf(err))
			}
			damage, err := c.Restore(t.Context(), "deep")
			if !errors.Is(damage, errs.ErrCorrupt) || err != nil {
				t.Fatalf("%v, %v", damage, err)
			}
			after, err := c.Get("deep")
			if err != nil || after.Next <= before.Next {
				t.Fatalf("%+v, %v", after, err)
			}
			after.Next = before.Next
			if diff := cmp.Diff(asJSON(t, before), asJSON(t, after)); diff != "" {
				t.Errorf("another record is restored:\n%s", diff)
			}
			if aside, err := os.ReadFile(filepath.Join(filepath.Dir(path), "record.damaged")); err != nil || !bytes.Equal(aside, bad) {
				t.Errorf("put aside is %q: %v", aside, err)
			}
			if damage, err := c.Restore(t.Context(), "deep"); damage != nil || err != nil {
				t.Errorf("a sound record: %v, %v", damage, err)
			}
		})
	}
}

// TestARestoredRecordSkipsTheNumbersThatTheLostOneReserved with a copy from before the record that reserved numbers for
// many snapshots of many trees.
func TestARestoredRecordSkipsTheNumbersThatTheLostOneReserved(t *testing.T) {
	c := open(t)
	r := newRecord("wide")
	for _, path := range []string{"/", "/a", "/b", "/c"} {
		r.Trees = append(r.Trees, catalog.Tree{Path: path})
	}
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(c.Path("wide"), "record.copy")
	older, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Lock(t.Context(), "wide")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.SaveReservingOrdered(len(h.Trees)); err != nil {
		t.Fatal(err)
	}
	reserved := h.Next
	h.Release()
	for path, text := range map[string][]byte{copied: older, filepath.Join(c.Path("wide"), "record.json"): nil} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Restore(t.Context(), "wide"); err != nil {
		t.Fatal(err)
	}
	if after, err := c.Get("wide"); err != nil || after.Next <= reserved {
		t.Errorf("the lost record covered %d numbers; restored is %+v, %v", reserved, after, err)
	}
}

// Without a sound copy nothing is restored, and an ephemeral sandbox has no copy.
func TestADamagedCopyRestoresNothing(t *testing.T) {
	c, path, text, _ := storedText(t)
	copied := filepath.Join(filepath.Dir(path), "record.copy")
	for _, bad := range [][]byte{nil, text[:len(text)-3], bytes.Replace(text, []byte("deep"), []byte("peep"), 1), []byte("{}\n")} {
		for file, text := range map[string][]byte{path: []byte("{"), copied: bad} {
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if damage, err := c.Restore(t.Context(), "deep"); damage != nil || !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("from %.20q: %v, %v", bad, damage, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "{" {
			t.Errorf("the record is %q: %v", got, err)
		}
	}
	r := newRecord("short")
	r.Ephemeral = true
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(c.Path("short")); err != nil || len(files) != 1 {
		t.Errorf("an ephemeral sandbox has %v: %v", files, err)
	}
}

// The copy follows each change, so that a repair loses none.
func TestTheCopyOfARecordFollowsIt(t *testing.T) {
	c, path, _, _ := storedText(t)
	h, err := c.Lock(t.Context(), "deep")
	if err != nil {
		t.Fatal(err)
	}
	h.At = "m1"
	err = h.Save()
	h.Release()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Restore(t.Context(), "deep"); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Get("deep"); err != nil || r.At != "m1" {
		t.Errorf("%+v, %v", r, err)
	}
}
