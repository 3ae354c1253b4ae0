//go:build linux

package zfs

import (
	"errors"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

func TestRowsOfHeldSpace(t *testing.T) {
	rows, err := parseHeldRows("tank/w\t90112\t-\t-\n" +
		"tank/w@snapfs-1\t0\t-\t1\n" +
		"tank/w@snapfs-2\t8192\ttank/w/.snapfs/x,tank/w/.snapfs/y\t1\n" +
		"tank/w@mine\t4096\t\t0\n" +
		"tank/w@held\t4096\t-\t2\n")
	want := []heldRow{{"tank/w", 90112, false}, {"tank/w@snapfs-1", 0, false}, {"tank/w@snapfs-2", 8192, true}, {"tank/w@mine", 4096, false}, {"tank/w@held", 4096, true}}
	if err != nil || !slices.Equal(rows, want) {
		t.Errorf("the rows are %v, %v, want %v", rows, err, want)
	}
	for _, text := range []string{"tank\n", "tank\t1K\t-\t-\n", "tank@a\t1\t-\tnone\n"} {
		if rows, err := parseHeldRows(text); !errors.Is(kindOf(err), errs.ErrCorrupt) {
			t.Errorf("%q: %v, %v", text, rows, err)
		}
	}
	if n, err := parseReclaim("destroy\ttank/w@a\ndestroy\ttank/w@b\nreclaim\t1081344\n"); n != 1081344 || err != nil {
		t.Errorf("the space to reclaim is %d, %v", n, err)
	}
	for _, text := range []string{"", "destroy\ttank/w@a\n", "reclaim\t1.03M\n"} {
		if n, err := parseReclaim(text); err == nil {
			t.Errorf("%q: %d bytes to reclaim", text, n)
		}
	}
}

// TestHeldSpaceIsThatOfNeighbours: each snapshot a to e alone holds 1, and two neighbours share 10, which only the
// removal of both frees. The dataset itself holds 1000, and shares 10 with e.
func TestHeldSpaceIsThatOfNeighbours(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	free := func(first, last string) (int64, error) {
		n := slices.Index(names, last) - slices.Index(names, first) + 1
		if n < 1 {
			t.Fatalf("from %s to %s", first, last)
		}
		return int64(n + 10*(n-1)), nil
	}
	for what, c := range map[string]struct {
		order map[string]int
		busy  string
		gone  bool
		want  []snapshot.Bytes
	}{
		"all, the oldest first":     {map[string]int{"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}, "", false, []snapshot.Bytes{45, 44, 33, 22, 11, 0}},
		"all, and the dataset":      {map[string]int{"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}, "", true, []snapshot.Bytes{1055, 1054, 1043, 1032, 1021, 0}},
		"two with one between them": {map[string]int{"b": 0, "d": 1}, "", false, []snapshot.Bytes{2, 1, 0, 0, 0, 0}},
		"a removed one between":     {map[string]int{"b": 0, "c": -1, "d": 1}, "", false, []snapshot.Bytes{22, 11, 0, 0, 0, 0}},
		"one has a clone":           {map[string]int{"a": 0, "b": 1, "c": 2}, "b", true, []snapshot.Bytes{2, 1, 1, 0, 0, 0}},
		"none":                      {nil, "", true, make([]snapshot.Bytes, 6)},
	} {
		l := heldDataset{order: c.order, gone: c.gone, used: 1055}
		for _, name := range names {
			l.snapshots = append(l.snapshots, heldRow{name: name, used: 1, busy: name == c.busy})
		}
		held := make([]snapshot.Bytes, 6)
		if err := l.addHeld(held, free); err != nil || !slices.Equal(held, c.want) {
			t.Errorf("%s: held are %v, %v, want %v", what, held, err, c.want)
		}
	}
}
