package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
)

// untilGone has one command after another look at a sandbox until there is none, for
// one that finds its lock taken leaves it to the next, and is what they have said.
func (b *bench) untilGone(name string) (told []string) {
	b.t.Helper()
	for {
		var said *[]string
		b.Engine, said = b.reopen()
		told = append(told, *said...)
		if _, err := b.Show(b.t.Context(), name); errors.Is(err, errs.ErrNotFound) {
			return told
		}
		time.Sleep(time.Millisecond)
	}
}

func TestASandboxIsRemovedWhenItsEndHasCome(t *testing.T) { asBoth(t, endsForGood) }

func endsForGood(t *testing.T, b *bench) {
	make := func(name string, l engine.Limits) {
		req := b.request()
		req.Name, req.Policy.Limits = name, l
		if _, err := b.New(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	hard := func(after time.Duration) func(l *engine.Limits) {
		return func(l *engine.Limits) { l.RemoveAfter = after }
	}
	b.write("f", "0")

	// While something runs in it, by its keeper; even where that stands still.
	make("running", engine.Limits{RemoveAfter: time.Hour})
	k := b.talk("running")
	b.limit("running", func(l *engine.Limits) { l.TTL = time.Millisecond })
	b.untilPaused("running", "ttl")
	b.limit("running", hard(time.Millisecond))
	if st, err := k.Wait(t.Context()); err != nil || st.Signal != syscall.SIGKILL || k.Hit() == nil || k.Hit().Limit != "remove-after" {
		t.Errorf("its command ended with %v, %v, %+v", st, err, k.Hit())
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	b.untilGone("running")

	// After its keeper was killed, by the next command.
	make("killed", engine.Limits{RemoveAfter: time.Hour})
	k = b.talk("killed")
	if err := syscall.Kill(b.keeperOf("killed").PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	b.limit("killed", hard(time.Millisecond))
	b.untilGone("killed")

	// A further thought in time saves it; but nothing else is held up by a note.
	make("saved", engine.Limits{RemoveAfter: time.Hour})
	b.limit("saved", hard(time.Millisecond))
	b.limit("saved", hard(time.Hour))
	make("over", engine.Limits{RemoveAfter: time.Millisecond})
	said := b.untilGone("over")
	if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "over is removed (remove-after: 1ms") }) {
		t.Errorf("said: %q", said)
	}
	b.in("saved", "true")

	// With its end kept, it stays as its states.
	make("kept", engine.Limits{RemoveAfter: time.Hour, KeepEnd: true})
	b.in("kept", "echo late > f")
	b.limit("kept", hard(time.Millisecond))
	var info engine.Info
	var err error
	for err == nil && (info.Record == nil || info.Ended == nil) { // by its keeper, or by the next command
		b.Engine, _ = b.reopen()
		info, err = b.Show(t.Context(), "kept")
	}
	if err != nil || len(info.Snapshots) != 1 || info.Snapshots[0].Name != "end" {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := b.Supervise.Exec(t.Context(), "kept", b.command("true")); !errors.Is(err, errs.ErrDenied) {
		t.Errorf("a command in it: %v", err)
	}
	if got := b.changed("kept", "", "end"); len(got) != 1 {
		t.Errorf("its last state: %q", got)
	}
	if rec, err := b.Fork(t.Context(), "kept", "end", "next"); err != nil || rec.Ended != nil {
		t.Errorf("%+v, %v", rec, err)
	}
	b.Engine, _ = b.reopen()
	if info, err := b.Show(t.Context(), "next"); err != nil || info.Ended != nil || info.Policy.Limits.RemoveAfter != 0 {
		t.Errorf("a fork of what has ended: %+v, %v", info, err)
	}
	for _, name := range []string{"kept", "next", "saved"} {
		if err := b.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(b.state, "ends")); len(left) > 0 || err != nil {
		t.Errorf("notes left: %v, %v", left, err)
	}
	b.sound("all have ended")
}

// What could not be mended may need a sandbox: a promotion that was killed is put back into
// its record.
func TestNothingIsEndedBeforeAllIsMended(t *testing.T) { asBoth(t, mendedFirst) }

func mendedFirst(t *testing.T, b *bench) {
	req := b.request()
	req.Name, req.Policy.Limits.RemoveAfter = "over", time.Millisecond
	if _, err := b.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(b.state, "promotions", "x.journal")
	if err := os.MkdirAll(journal, 0o700); err != nil { // no file, so that it cannot be read
		t.Fatal(err)
	}
	if _, err := engine.Open(t.Context(), engine.Config{State: b.state, Drivers: drivers()}); err == nil {
		t.Fatal("a promotion that cannot be mended is passed over")
	}
	if _, err := os.Stat(filepath.Join(b.state, "sandboxes/over")); err != nil {
		t.Error(err)
	}
	if err := os.Remove(journal); err != nil {
		t.Fatal(err)
	}
	b.untilGone("over")
}
