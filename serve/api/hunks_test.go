//go:build linux

package api

import (
	"os"
	"strings"
	"testing"
)

// TestAHunkIsPromotedWithoutTheOthers costs some 1 s.
func TestAHunkIsPromotedWithoutTheOthers(t *testing.T) {
	d := newDesk(t)
	long := strings.Repeat("same\n", 20)
	if err := os.WriteFile(d.work+"/long", []byte("first\n"+long+"last\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.make("t1")
	d.exec("t1", "sed -i 's/first/new first/; s/last/new last/' long; echo two > b.txt")
	var got struct {
		Hunks []struct{ ID, Path, Text string }
	}
	const hunks, plan, promote = "/v1/sandboxes/t1/hunks", "/v1/sandboxes/t1/plan", "/v1/sandboxes/t1/promote"
	d.want(200, &got, "POST", hunks, map[string]any{"only": []string{"long"}})
	if len(got.Hunks) != 2 || got.Hunks[0].Path != d.work+"/long" || !strings.Contains(got.Hunks[0].Text, "+new first") || got.Hunks[0].ID == got.Hunks[1].ID {
		t.Fatalf("%+v", got)
	}
	d.want(404, nil, "POST", "/v1/sandboxes/none/hunks", nil)
	d.want(422, nil, "POST", hunks, map[string]any{"only": []string{"long"}, "target": "/srv"})
	d.only("t1")
	of := func(ids ...string) map[string]any {
		return map[string]any{"only": []string{"long"}, "hunks": map[string][]string{got.Hunks[0].Path: append([]string{}, ids...)}}
	}
	first := of(got.Hunks[0].ID)
	var p Plan
	d.want(200, &p, "POST", plan, first)
	if len(p.Steps) != 1 || p.Steps[0].Do != "change" {
		t.Errorf("%+v", p)
	}
	var both Plan
	if d.want(200, &both, "POST", plan, of(got.Hunks[0].ID, got.Hunks[1].ID)); both.Fingerprint == p.Fingerprint {
		t.Error("another choice has the same fingerprint")
	}
	d.want(400, nil, "POST", plan, of())
	d.want(409, nil, "POST", plan, of("0123456789abcdef01234567"))
	d.want(409, nil, "POST", plan, map[string]any{"hunks": map[string][]string{"long": {}}}) // no absolute path
	d.want(400, nil, "POST", plan, map[string]any{"target": "/srv", "hunks": map[string][]string{}})

	// What changed since the review is not promoted, neither in the hunk nor beside it.
	first["plan"] = p.Fingerprint
	d.exec("t1", "sed -i 's/new first/evil first/' long")
	d.want(409, nil, "POST", promote, first)
	d.exec("t1", "sed -i 's/evil first/new first/; s/new last/evil last/' long")
	d.want(200, nil, "POST", promote, first)
	if data, err := os.ReadFile(d.work + "/long"); err != nil || string(data) != "new first\n"+long+"last\n" {
		t.Errorf("promoted: %q, %v", data, err)
	}
	if _, err := os.Lstat(d.work + "/b.txt"); err == nil {
		t.Error("b.txt was not selected")
	}
	d.only("t1")
	d.want(200, &got, "POST", hunks, nil)
	if len(got.Hunks) != 1 || !strings.Contains(got.Hunks[0].Text, "+evil last") {
		t.Errorf("left: %+v", got)
	}
}
