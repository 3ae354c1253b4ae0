package engine_test

import (
	"errors"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

// TestDroppedSnapshotsLeaveTheOthersWhole: their names are free, the snapshots between which they lay have their
// content, and so has a sandbox that was forked from one. The snapshot that the files started from stays. Cost: half
// a second.
func TestDroppedSnapshotsLeaveTheOthersWhole(t *testing.T) { asBoth(t, dropSnapshots) }

func dropSnapshots(t *testing.T, b *bench) {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.new("s")
	for _, name := range []string{"one", "two", "three", "four"} {
		b.in("s", "echo "+name+" > f; echo "+name+" > "+name)
		_, err := b.Snapshot(ctx, "s", name)
		must(err)
	}
	_, err := b.Fork(ctx, "s", "two", "forked")
	must(err)
	must(b.DropSnapshots(ctx, "s", []string{"one", "two", "four", "none"}))
	must(b.DropSnapshots(ctx, "s", []string{"one", "two"}))
	rec, err := b.Catalog().Get("s")
	must(err)
	if len(rec.Snapshots) != 2 || rec.Snapshots[0].Name != "three" || rec.Snapshots[0].Parent != "" || rec.Snapshots[1].Name != "four" {
		t.Errorf("left: %+v", rec.Snapshots)
	}
	_, err = b.Collect(ctx)
	must(err)
	holds := func(sandbox, want string) {
		t.Helper()
		if got := b.in(sandbox, "cat f one"); got != want+"\none\n" {
			t.Errorf("%s holds %q, not %s", sandbox, got, want)
		}
	}
	holds("s", "four")
	must(b.Rollback(ctx, "s", "three"))
	holds("s", "three")
	holds("forked", "two")
	if err := b.Rollback(ctx, "s", "two"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("going back to a dropped snapshot: %v", err)
	}
	_, err = b.Snapshot(ctx, "s", "two")
	must(err)
	must(b.Remove(ctx, "forked"))
	must(b.Remove(ctx, "s"))
}
