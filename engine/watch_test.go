package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/errs"
)

// onAll runs a test as root, in make test-long as a user (see [asBoth]), and on btrfs.
func onAll(t *testing.T, test func(t *testing.T, b *bench)) {
	asBoth(t, test)
	onBtrfs(t, test)
}

// stays runs a command in a sandbox until the test ends.
func (b *bench) stays(name string) {
	b.t.Helper()
	p, err := b.Supervise.Exec(b.t.Context(), name, b.command("sleep 1000"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := errors.Join(b.Supervise.Stop(context.Background(), name), p.Close()); err != nil {
			b.t.Error(err)
		}
	})
}

// soon waits until something holds.
func (b *bench) soon(what string, holds func() bool) {
	b.t.Helper()
	for until := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			b.t.Fatalf("it does not come about that %s", what)
		}
	}
}

// toldInside is what a program in the sandbox reads of the drift.
func (b *bench) toldInside(name string) (r compare.DriftReport, found bool) {
	b.t.Helper()
	text := b.in(name, "cat /run/snapfs/drift 2>/dev/null || true")
	if text == "" {
		return r, false
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		b.t.Fatalf("%v in %q", err, text)
	}
	return r, true
}

func TestARunningSandboxIsToldThatItsBaseMoved(t *testing.T) {
	onAll(t, func(t *testing.T, b *bench) {
		b.stand()
		b.new("one")
		b.stays("one")
		b.soon("the sandbox is told that nothing moved", func() bool {
			r, found := b.toldInside("one")
			return found && r.Known && r.Files == 0
		})
		b.in("one", "echo mine > edited")
		b.write("edited", "later")
		if err := os.MkdirAll(filepath.Join(b.workspace, "fresh/dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.soon("the sandbox is told of the first changes", func() bool {
			r, _ := b.toldInside("one")
			return r.Files >= 2 && r.Both == 1
		})
		b.write("fresh/dir/file", "x")
		b.soon("the sandbox is told of a file in a new directory", func() bool {
			r, _ := b.toldInside("one")
			for _, p := range r.Paths {
				if p.Path == filepath.Join(b.workspace, "fresh/dir/file") {
					return true
				}
			}
			return false
		})
	})
}

// follows listens to the drift of a sandbox until the test ends.
func (b *bench) follows(name string) (told chan compare.DriftReport, ended chan error, stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	told, ended = make(chan compare.DriftReport, 100), make(chan error, 1)
	go func() {
		ended <- b.Supervise.FollowDrift(ctx, name, func(r compare.DriftReport) error {
			told <- r
			return nil
		})
	}()
	return told, ended, cancel
}

// hears waits for a report of so many files.
func (b *bench) hears(told chan compare.DriftReport, files int) {
	b.t.Helper()
	for {
		select {
		case r := <-told:
			if r.Files == files {
				return
			}
		case <-time.After(20 * time.Second):
			b.t.Fatalf("it is not told of %d files", files)
		}
	}
}

func TestDriftIsFollowedByWayOfAKeeperAndWithoutOne(t *testing.T) {
	onAll(t, func(t *testing.T, b *bench) {
		b.stand()
		b.new("one")
		p, err := b.Supervise.Exec(t.Context(), "one", b.command("sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		kept, keptEnd, stopKept := b.follows("one")
		b.hears(kept, 0)
		b.write("edited", "later")
		b.hears(kept, 1)
		if err := errors.Join(b.Supervise.Stop(t.Context(), "one"), p.Close()); err != nil {
			t.Fatal(err)
		}
		b.write("mode", "later") // there is no keeper any more
		b.hears(kept, 2)
		own, ownEnd, _ := b.follows("one")
		b.hears(own, 2)
		b.write("still/file", "later")
		b.hears(own, 3)
		stopKept()
		if err := <-keptEnd; !errors.Is(err, errs.ErrInterrupted) {
			t.Errorf("interrupted, it ends with %v", err)
		}
		if err := b.Remove(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		b.write("still/file", "after its end")
		select {
		case err := <-ownEnd:
			if err != nil {
				t.Errorf("when the sandbox is removed it ends with %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("it follows a sandbox that is gone")
		}
	})
}

func TestFollowingEndsWithWhoListens(t *testing.T) {
	b := newBench(t)
	b.new("one")
	enough := errors.New("enough")
	if err := b.Supervise.FollowDrift(t.Context(), "one", func(compare.DriftReport) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("err = %v", err)
	}
	b.stays("one")
	if err := b.Supervise.FollowDrift(t.Context(), "one", func(compare.DriftReport) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("by way of a keeper: %v", err)
	}
	if err := b.Supervise.FollowDrift(t.Context(), "none", nil); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("of no sandbox: %v", err)
	}
}

// A command that is short has the machine to itself.
func TestAShortCommandIsNotWatchedFor(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		s, out, _ := b.sh("ls -a /run")
		if slices.Contains(strings.Fields(out), "snapfs") {
			t.Errorf("it was told something:\n%s", out)
		}
		if err := s.Discard(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// A command that is long, in a sandbox of its own, is told as well.
func TestALongRunIsTold(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.stand()
		b.write("edited", "before the run")
		tick()
		s, out, _ := b.sh("until test -e /run/snapfs/drift; do sleep 0.1; done; cat /run/snapfs/drift")
		var r compare.DriftReport
		if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Known || r.Files != 0 {
			t.Errorf("it reads %q, %v", out, err)
		}
		if err := s.Discard(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWhatIsHiddenIsNotTold(t *testing.T) {
	b := newBench(t)
	b.stand()
	req := b.request()
	req.Name, req.Policy.Hide = "one", []string{filepath.Join(b.workspace, "dir")}
	if _, err := b.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b.removeLater("one")
	b.stays("one")
	tick()
	b.write("dir/secret plan", "x")
	b.write("edited", "x")
	var told compare.DriftReport
	b.soon("the sandbox is told", func() bool {
		told, _ = b.toldInside("one")
		return len(told.Paths) > 0
	})
	for _, p := range told.Paths {
		if strings.Contains(p.Path, "/dir") {
			t.Errorf("the sandbox is told of %s", p.Path)
		}
	}
}

func TestWhatIsToldIsBounded(t *testing.T) {
	b := newBench(t)
	b.new("one")
	b.stays("one")
	tick()
	for i := range 700 {
		b.write(fmt.Sprintf("%0200d", i), "")
	}
	told, _, stop := b.follows("one")
	defer stop()
	late := time.After(20 * time.Second)
	for all := 0; all < 701; { // a report has all drift so far: the first is short where writing took long
		select {
		case r := <-told:
			n := len(r.Paths)
			all = n + r.More
			if n == 0 || n > 500 || all > 701 {
				t.Fatalf("%d paths are reported, and %d more", n, r.More)
			}
		case <-late:
			t.Fatalf("only %d of 701 paths are reported", all)
		}
	}
}
