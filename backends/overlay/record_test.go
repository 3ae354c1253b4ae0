//go:build linux

package overlay

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	for _, r := range []record{
		{tree: "/", taken: time.Unix(1, 2).UTC()},
		{tree: "/a b\n\xff\"", taken: time.Unix(1e9, 0).UTC(), layers: []string{"f1-a", "f0-b"}},
		{fork: true, tree: "/t", taken: time.Unix(0, 1).UTC(), base: "s1", boot: "b", upper: "f1-c", layers: []string{"f1-a"}},
	} {
		got, err := parseRecord(string(r.text()))
		if err != nil {
			t.Errorf("%s: %v", r.text(), err)
		}
		if d := cmp.Diff(r, got, cmp.AllowUnexported(record{})); d != "" {
			t.Error(d)
		}
	}
}

// A process killed while it writes leaves the beginning of a record, and that
// is never taken for the whole.
func TestThePartOfARecordIsHalfMade(t *testing.T) {
	r := record{fork: true, tree: "/t", taken: time.Unix(0, 1).UTC(), base: "s1", boot: "b", upper: "f1-c", layers: []string{"f1-a"}}
	text := string(r.text())
	for n := range text {
		if _, err := parseRecord(text[:n]); !errors.Is(err, errHalf) {
			t.Errorf("%q gives %v", text[:n], err)
		}
	}
}

func TestARecordCannotNameWhatIsNoLayer(t *testing.T) {
	for _, name := range []string{"..", "../x", "a/b", "/etc", "", ".hidden"} {
		r := record{tree: "/t", taken: time.Unix(0, 1), layers: []string{name}}
		if _, err := parseRecord(string(r.text())); err == nil || errors.Is(err, errHalf) {
			t.Errorf("the layer %q gives %v", name, err)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(snapshotV1 + "tree \"/\"\ntaken 2026-11-20T19:09:26.1Z\nlayer a\nend\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		if again, err := parseRecord(string(r.text())); err != nil || again.tree != r.tree || len(again.layers) != len(r.layers) {
			t.Errorf("%q is read, and not what is written of it: %v", text, err)
		}
	})
}
