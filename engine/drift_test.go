package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/errs"
)

// tick waits until files are stamped with a later time than what was written
// so far.
func tick() { time.Sleep(20 * time.Millisecond) }

// moves changes a real workspace in each way, and says what of that is drift on
// a frozen base and on a live one.
func (b *bench) moves() (exact, live map[string]string) {
	b.t.Helper()
	at := func(name string) string { return filepath.Join(b.workspace, name) }
	tick()
	b.write("edited", "other")
	b.write("dir/new", "new")
	for _, err := range []error{
		os.Chmod(at("mode"), 0o600),
		os.Rename(at("dir/old name"), at("dir/new name")),
		os.Remove(at("sub/gone")),
	} {
		if err != nil {
			b.t.Fatal(err)
		}
	}
	exact = map[string]string{
		"edited": "modified", "dir/new": "added", "mode": "modified", "dir/old name": "deleted", "dir/new name": "added", "sub/gone": "deleted",
	}
	live = map[string]string{
		"edited": "changed", "dir/new": "changed", "mode": "changed", "dir/new name": "changed",
		"dir": "entries changed", "sub": "entries changed",
	}
	return exact, live
}

func (b *bench) stand() {
	b.t.Helper()
	for _, dir := range []string{"dir", "sub", "still"} {
		if err := os.Mkdir(filepath.Join(b.workspace, dir), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, name := range []string{"edited", "mode", "dir/old name", "sub/gone", "still/file"} {
		b.write(name, "first")
	}
	tick()
}

// drifts checks what is said to have moved, and what of it in the sandbox too.
func (b *bench) drifts(name string, want map[string]string, files int, both ...string) compare.DriftReport {
	b.t.Helper()
	r, err := b.Compare.DriftOf(b.t.Context(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	got, shared := map[string]string{}, map[string]bool{}
	for _, p := range both {
		shared[p] = true
	}
	for _, p := range r.Paths {
		rel, err := filepath.Rel(b.workspace, p.Path)
		if err != nil {
			b.t.Fatal(err)
		}
		got[rel] = p.Kind
		if want[rel] != p.Kind {
			b.t.Errorf("%s: %q, want %q", rel, p.Kind, want[rel])
		}
		if p.Both != shared[rel] {
			b.t.Errorf("%s: the sandbox changed it too: %v", rel, p.Both)
		}
	}
	for path, kind := range want {
		if got[path] == "" {
			b.t.Errorf("%s (%s) is missing", path, kind)
		}
	}
	if !r.Known || r.Files != files || r.Both != len(both) {
		b.t.Errorf("known %v, %d files, %d of them both; want %d and %d", r.Known, r.Files, r.Both, files, len(both))
	}
	return r
}

func TestDriftOnALiveBaseIsEveryPlaceWithALaterChangeTime(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.stand()
		b.new("one")
		if r := b.drifts("one", nil, 0); r.Exact {
			t.Error("a live base is said to tell exactly")
		}
		_, live := b.moves()
		b.in("one", "echo mine > edited; echo mine > own; rm still/file")
		b.drifts("one", live, 5, "edited")
		b.shows("one", 5)
		tick()
		b.new("two")
		b.drifts("two", nil, 0)
		infos, err := b.List(t.Context(), true)
		if err != nil || len(infos) != 2 || infos[0].Drift.Paths != 5 || infos[1].Drift.Paths != 0 {
			t.Errorf("listed as %+v, %v", infos, err)
		}
	})
}

// shows checks how many paths a sandbox is shown to be behind. Show looks for a fifth of a second, which a busy
// machine may need for something else.
func (b *bench) shows(name string, paths int) {
	b.t.Helper()
	info, err := b.Show(b.t.Context(), name)
	for start := time.Now(); err == nil && !info.Drift.Known && time.Since(start) < time.Minute; {
		info, err = b.Show(b.t.Context(), name)
	}
	if err != nil || !info.Drift.Known || info.Drift.Paths != paths {
		b.t.Errorf("shown with the drift %+v, %v; want %d", info.Drift, err, paths)
	}
}

func TestDriftOnAFrozenBaseIsTheDifference(t *testing.T) { onBtrfs(t, frozenDrift) }

func frozenDrift(t *testing.T, b *bench) {
	b.stand()
	b.new("one")
	if r := b.drifts("one", nil, 0); !r.Exact {
		t.Error("a frozen base is said not to tell exactly")
	}
	exact, _ := b.moves()
	b.in("one", "echo mine > edited; echo mine > own; rm still/file")
	b.drifts("one", exact, 6, "edited")
	b.shows("one", 6)
	b.in("one", "rm sub/gone") // as the user did
	delete(exact, "sub/gone")
	b.drifts("one", exact, 5, "edited")
	if err := os.Chmod(filepath.Join(b.workspace, "mode"), 0o644); err != nil {
		t.Fatal(err)
	}
	delete(exact, "mode") // it is as it was
	b.drifts("one", exact, 4, "edited")
}

func TestWhatASandboxBroughtBackIsNoDrift(t *testing.T) {
	test := func(t *testing.T, b *bench) {
		b.stand()
		b.new("one")
		b.new("other")
		b.in("one", "echo mine > edited; echo mine > dir/own; rm sub/gone; mkdir more; echo x > more/file")
		tick()
		if _, err := b.Reconcile.Promote(t.Context(), "one", strictly()); err != nil {
			t.Fatal(err)
		}
		b.drifts("one", nil, 0)
		b.shows("one", 0)
		if r, err := b.Compare.DriftOf(t.Context(), "other"); err != nil || r.Files < 4 {
			t.Errorf("of another sandbox: %+v, %v", r, err)
		}
		tick()
		b.write("edited", "by the user, later")
		kind := "modified"
		if info, err := b.Show(t.Context(), "one"); err != nil || info.Base == "live" {
			kind = "changed"
		}
		b.drifts("one", map[string]string{"edited": kind}, 1, "edited")
	}
	asBoth(t, test)
	onBtrfs(t, test)
}

// What lies in another tree counts where the sandbox has changed it as well.
func TestDriftElsewhereIsWhatTheSandboxChangedToo(t *testing.T) {
	b := newBench(t)
	b.stand()
	beside := filepath.Dir(b.workspace)
	for _, name := range []string{"both", "real", "mine"} {
		if err := os.WriteFile(filepath.Join(beside, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tick()
	b.new("one")
	tick()
	for _, name := range []string{"both", "real"} {
		if err := os.WriteFile(filepath.Join(beside, name), []byte("later"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.in("one", "cd ..; echo mine > both; echo mine > mine")
	b.drifts("one", map[string]string{"../both": "changed"}, 1, "../both")
}

func TestDriftThatTakesTooLongIsNotKnown(t *testing.T) {
	b := newBench(t)
	b.stand()
	b.new("one")
	r, err := b.Compare.DriftWithin(t.Context(), "one", time.Nanosecond, time.Hour)
	if err != nil || r.Known {
		t.Errorf("%+v, %v", r, err)
	}
	b.Baseline.NoteLarge(b.workspace)
	r, err = b.Compare.DriftWithin(t.Context(), "one", time.Hour, time.Hour)
	if err != nil || r.Known {
		t.Errorf("of a workspace that was too large: %+v, %v", r, err)
	}
	b.drifts("one", nil, 0)
	if _, err := b.Compare.DriftWithin(t.Context(), "none", time.Hour, time.Hour); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("of no sandbox: %v", err)
	}
}
