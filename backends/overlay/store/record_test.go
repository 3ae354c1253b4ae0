//go:build linux

package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestARecordSurvivesWritingAndReading(t *testing.T) {
	for _, r := range []Record{
		{Tree: "/", Taken: time.Unix(1, 2).UTC()},
		{Tree: "/a b\n\xff\"", Taken: time.Unix(1e9, 0).UTC(), Layers: []string{"f1-a", "f0-b"}},
		{Fork: true, Tree: "/t", Taken: time.Unix(0, 1).UTC(), Base: "s1", Boot: "b", Upper: "f1-c", Layers: []string{"f1-a"}},
	} {
		got, err := parseRecord(string(r.text()))
		if err != nil {
			t.Errorf("parsing %s: %v", r.text(), err)
		}
		if d := cmp.Diff(r, got, cmp.AllowUnexported(Record{})); d != "" {
			t.Error(d)
		}
	}
}

// A process killed while it writes a record leaves a prefix of it, which must count as incomplete.
func TestAPrefixOfARecordIsIncomplete(t *testing.T) {
	r := Record{Fork: true, Tree: "/t", Taken: time.Unix(0, 1).UTC(), Base: "s1", Boot: "b", Upper: "f1-c", Layers: []string{"f1-a"}}
	text := string(r.text())
	for n := range text {
		if _, err := parseRecord(text[:n]); !errors.Is(err, errIncomplete) {
			t.Errorf("parsing %q returns %v", text[:n], err)
		}
	}
}

func TestARecordRefusesInvalidLayerNames(t *testing.T) {
	for _, name := range []string{"..", "../x", "a/b", "/etc", "", ".hidden"} {
		r := Record{Tree: "/t", Taken: time.Unix(0, 1), Layers: []string{name}}
		if _, err := parseRecord(string(r.text())); err == nil || errors.Is(err, errIncomplete) {
			t.Errorf("the layer name %q returns %v", name, err)
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
		if again, err := parseRecord(string(r.text())); err != nil || again.Tree != r.Tree || len(again.Layers) != len(r.Layers) {
			t.Errorf("%q is accepted, and the text written of it is not: %v", text, err)
		}
	})
}
