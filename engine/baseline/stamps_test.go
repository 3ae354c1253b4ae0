package baseline

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/promote"
)

// A file that a promotion to one directory wrote, and then one to the directory above, has the stamp of the second; and
// none if the second wrote the result of a merge there.
func TestAFileHasTheStampOfItsLastPromotionToAnyDirectory(t *testing.T) {
	cat, err := catalog.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cat.Path("s"), 0o700); err != nil {
		t.Fatal(err)
	}
	bl := New(cat, nil, nil, func(string) {})
	at := func(second int64) promote.Stamp { return promote.Stamp{Ino: 1, CTime: time.Unix(second, 0)} }
	type stamps = map[string]promote.Stamp
	first := stamps{"f": at(1), "merged": at(1), "other": at(1)}
	if err := bl.Remember("s", "/w/d", first, first); err != nil {
		t.Fatal(err)
	}
	if err := bl.Remember("s", "/w", stamps{"d/f": at(2), "d/merged": at(2)}, stamps{"d/f": at(2)}); err != nil {
		t.Fatal(err)
	}
	all, err := bl.Stamps("s")
	if err != nil {
		t.Fatal(err)
	}
	want := stamps{"f": at(2), "other": at(1)}
	same := func(a, b promote.Stamp) bool { return a.Ino == b.Ino && a.CTime.Equal(b.CTime) }
	if got := all.In("/w/d"); !maps.EqualFunc(got, want, same) {
		t.Errorf("the stamps are %v, want %v", got, want)
	}
}
