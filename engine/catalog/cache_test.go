package catalog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/packed"
)

// crowd is a number of sandboxes of which a cached listing is made.
const crowd = 100

// crowded returns a catalogue of many sandboxes, n000 and so on.
func crowded(t *testing.T) *catalog.Catalog {
	t.Helper()
	c := open(t)
	for i := range crowd {
		r := newRecord(fmt.Sprintf("n%03d", i))
		r.Ephemeral = true // without syncs
		r.Policy = catalog.Policy{Network: "none", Env: []string{"A=1"}, Limits: catalog.Limits{TTL: time.Hour}, Data: &catalog.Data{Writable: []string{}}}
		r.Snapshots = []catalog.NamedSnapshot{{Name: "s", Taken: time.Unix(1, 5).UTC()}}
		if err := c.Create(r); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// saved lists the sandboxes, and gives each a size, until the cache has all of them.
func saved(t *testing.T, c *catalog.Catalog) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; { // until the change times of the files are past
		l := c.ReadCached()
		known := 0
		for i, r := range l.Records {
			if n, ok := l.Usage(r); ok && n == int64(i)-1 {
				known++
			}
			l.SetUsage(r, int64(i)-1)
		}
		if known == crowd {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the cache has %d of %d sandboxes", known, crowd)
		}
		c.SaveCache(l)
	}
}

// same compares a cached listing with the records.
func same(t *testing.T, c *catalog.Catalog) *catalog.Listing {
	t.Helper()
	got, want := c.ReadCached(), c.ReadAll(nil)
	if len(got.Records) != len(want.Records) || len(got.Failures) != len(want.Failures) {
		t.Fatalf("got %d records and %v, want %d and %v", len(got.Records), got.Failures, len(want.Records), want.Failures)
	}
	for i, r := range want.Records {
		if got, want := text(t, got.Records[i]), text(t, r); got != want {
			t.Fatalf("cached:\n%s\nread:\n%s", got, want)
		}
	}
	return got
}

func change(t *testing.T, c *catalog.Catalog, name, workspace string) {
	t.Helper()
	h, err := c.TryLock(name)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	h.Workspace = workspace
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
}

func TestCachedListingIsThatOfTheRecords(t *testing.T) {
	c := crowded(t)
	saved(t, c)
	change(t, c, "n001", "/other")
	h, err := c.TryLock("n002")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := h.Discard()
	if err != nil {
		t.Fatal(err)
	}
	gone.Release()
	if err := os.WriteFile(filepath.Join(c.Path("n003"), "record.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := same(t, c)
	if len(l.Failures) != 1 || len(l.Records) != crowd-2 || l.Records[1].Workspace != "/other" {
		t.Errorf("got %d records and %v, want %d and one error", len(l.Records), l.Failures, crowd-2)
	}
	if _, ok := l.Usage(l.Records[1]); ok {
		t.Error("the size of a sandbox with a new record is that of before")
	}
	if n, ok := l.Usage(l.Records[0]); !ok || n != -1 {
		t.Errorf("the size of an unchanged sandbox is %d, %v", n, ok)
	}
}

// TestDamagedCacheChangesNoListing cuts the file, changes its bytes, and puts other things in its place.
func TestDamagedCacheChangesNoListing(t *testing.T) {
	c := crowded(t)
	saved(t, c)
	path := filepath.Join(c.Dir(), "listing")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := append([]byte("snapfs listing 2\n"), data[17:]...)
	damaged := map[string][]byte{"empty": {}, "other format": other, "one byte more": append(append([]byte{}, data...), 0)}
	for i := 1; i < len(data); i += len(data)/6 + 1 {
		cut := append([]byte{}, data[:i]...)
		flipped := append([]byte{}, data...)
		flipped[i] ^= 0x41
		damaged[fmt.Sprintf("cut after %d", i)], damaged[fmt.Sprintf("changed at %d", i)] = cut, flipped
	}
	for how, content := range damaged {
		t.Run(how, func(t *testing.T) {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			l := same(t, c)
			if _, ok := l.Usage(l.Records[0]); ok {
				t.Error("the damaged file is believed")
			}
			c.SaveCache(l)
			saved(t, c) // and is written again
		})
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	c.SaveCache(same(t, c))
	same(t, c)
	if _, err := os.Lstat(path + ".new"); err == nil {
		t.Error("a new file stays that cannot replace the old one")
	}
}

// TestCacheMissesNoChangeOfTheSameTick changes a record again right after a listing has read it. The kernels with
// fine change times tell both changes apart; for the others, a record must not be saved that has just changed.
func TestCacheMissesNoChangeOfTheSameTick(t *testing.T) {
	c := crowded(t)
	saved(t, c)
	for i := range 200 {
		want := fmt.Sprintf("/w/%03d", i) // of one length
		began := time.Now()
		change(t, c, "n000", want)
		l := c.ReadCached()
		l.SetUsage(l.Records[0], 1)
		if _, ok := l.Usage(l.Records[0]); ok && time.Since(began) < 30*time.Millisecond {
			t.Fatal("a record is saved that changed just now")
		}
		for _, r := range l.Records {
			l.SetUsage(r, int64(i)) // so that it is saved
		}
		c.SaveCache(l)
		if got := l.Records[0].Workspace; got != want {
			t.Fatalf("got the workspace %q, want %q", got, want)
		}
	}
}

// TestManyProcessesMaySaveTheCache lists and saves from several goroutines while records change.
func TestManyProcessesMaySaveTheCache(t *testing.T) {
	c := crowded(t)
	saved(t, c)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 25 {
				l := c.ReadCached()
				if len(l.Records) != crowd || len(l.Failures) > 0 {
					t.Errorf("got %d records and %v", len(l.Records), l.Failures)
				}
				for _, r := range l.Records {
					l.SetUsage(r, int64(g*100+i))
				}
				c.SaveCache(l)
			}
		})
	}
	for i := range 25 {
		change(t, c, fmt.Sprintf("n%03d", i), "/changed")
	}
	all.Wait()
	same(t, c)
	if _, err := os.Lstat(filepath.Join(c.Dir(), "listing.new")); err == nil {
		t.Error("an unfinished file stays")
	}
}

// TestUnfinishedCacheOfAKilledProcessIsReplaced: a young one is that of a process at work.
func TestUnfinishedCacheOfAKilledProcessIsReplaced(t *testing.T) {
	c := crowded(t)
	unfinished := filepath.Join(c.Dir(), "listing.new")
	if err := os.WriteFile(unfinished, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	young := time.Now().Add(time.Hour) // however long this test takes
	if err := os.Chtimes(unfinished, young, young); err != nil {
		t.Fatal(err)
	}
	c.SaveCache(c.ReadCached())
	if _, err := os.Lstat(unfinished); err != nil {
		t.Fatal("the unfinished file of a process at work is removed")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(unfinished, old, old); err != nil {
		t.Fatal(err)
	}
	saved(t, c)
}

// TestEveryFieldOfARecordIsCached fills all fields, also those that are yet to come.
func TestEveryFieldOfARecordIsCached(t *testing.T) {
	if _, err := packed.Layout[catalog.Record](); err != nil {
		t.Fatal(err)
	}
	want := new(catalog.Record)
	fill(t, reflect.ValueOf(want).Elem())
	got := new(catalog.Record)
	if err := packed.Decode(string(packed.Append(nil, want)), got); err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, got), text(t, want); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(-7)
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0))
		fill(t, v.Index(1))
	case reflect.Struct:
		if when, ok := v.Addr().Interface().(*time.Time); ok {
			*when = time.Unix(1_800_000_000, 9).UTC()
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i))
			}
		}
	default:
		t.Fatalf("no value for a %v", v.Type())
	}
}
