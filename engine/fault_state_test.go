package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
)

// damage edits a sandbox's record.
func (b *bench) damage(name, pattern, with string) {
	b.t.Helper()
	path := filepath.Join(b.state, "sandboxes", name, "record.json")
	data, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	now := regexp.MustCompile(pattern).ReplaceAll(data, []byte(with))
	now = regexp.MustCompile(`\n  "sum": .*`).ReplaceAll(now, nil) // as a person would who edits it
	if string(now) == string(data) {
		b.t.Fatalf("%s is not in the record", pattern)
	}
	if err := os.WriteFile(path, now, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func TestWhatIsWrongWithOneSandboxHidesNoOther(t *testing.T) { asBoth(t, whatIsWrongHidesNoOther) }

func whatIsWrongHidesNoOther(t *testing.T, b *bench) {
	b.new("well")
	for _, c := range []struct {
		name   string
		damage func(name string)
		want   error
		listed bool  // among the others
		goes   error // of rm
	}{
		{"corrupt", func(n string) { b.damage(n, `(?s)"created".*`, "") }, errs.ErrCorrupt, false, nil},
		{"empty", func(n string) { b.damage(n, `(?s).*`, "") }, errs.ErrCorrupt, false, nil},
		{"newer", func(n string) { b.damage(n, `"format": 1`, `"format": 99`) }, errs.ErrNotSupported, false, errs.ErrNotSupported},
		{"dataless", func(n string) { b.loseData(n) }, errs.ErrNotFound, true, nil},
		{"foreign", func(n string) { b.damage(n, `"driver": "[a-z]+"`, `"driver": "zfs"`) }, errs.ErrNotSupported, true, errs.ErrNotSupported},
	} {
		req := b.request()
		req.Name = c.name
		if _, err := b.New(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		c.damage(c.name)
		b.Engine, _ = b.reopen()
		infos, err := b.List(t.Context(), true)
		found := func(name string) bool {
			return slices.ContainsFunc(infos, func(i engine.Info) bool { return i.Name == name })
		}
		if !found("well") || found(c.name) != c.listed {
			t.Errorf("%s: listed: %v", c.name, infos)
		}
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: listing: %v, want %v that names it", c.name, err, c.want)
		}
		if _, err := b.Supervise.Exec(t.Context(), c.name, b.command("true")); !errors.Is(err, c.want) {
			t.Errorf("%s: running in it: %v, want %v", c.name, err, c.want)
		}
		b.in("well", "true")
		if s, _, st := b.sh("true"); st.ExitCode() != 0 || s.Discard(t.Context()) != nil {
			t.Errorf("%s: a run beside it: %v", c.name, st)
		}
		if err := b.Remove(t.Context(), c.name); !errors.Is(err, c.goes) {
			t.Errorf("%s: removing it: %v, want %v", c.name, err, c.goes)
		}
		if c.goes != nil { // as its own snapfs would
			for _, dir := range []string{"sandboxes", "trash"} {
				left, _ := filepath.Glob(filepath.Join(b.state, dir, c.name+"*"))
				for _, path := range left {
					if err := os.RemoveAll(path); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		b.sound(c.name)
	}
}

// loseData removes what the backend holds of a sandbox.
func (b *bench) loseData(name string) {
	info, err := b.Show(b.t.Context(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, t := range info.Trees {
		backend, err := openDriver(b, t)
		if err == nil {
			err = errors.Join(backend.RemoveFork(context.Background(), t.Fork), backend.Remove(context.Background(), t.Base))
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestAStateOfANewerFormatIsRefused(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		if err := os.WriteFile(filepath.Join(b.state, "format"), []byte("99\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := engine.Open(t.Context(), engine.Config{State: b.state, Drivers: drivers()})
		if !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), "newer") {
			t.Errorf("got %v", err)
		}
	})
}

func TestHostileNamesLeaveNothing(t *testing.T) { asBoth(t, hostileNamesLeaveNothing) }

func hostileNamesLeaveNothing(t *testing.T, b *bench) {
	b.setStage()
	s, _, _ := b.sh("true")
	for _, name := range []string{".", "..", "../x", "a/b", "/abs", "-rf", ".hidden", "a\nb", "a\x00b", "ä", "\x1b[31m", strings.Repeat("a", 300)} {
		req := b.request()
		req.Name = name
		_, newErr := b.New(t.Context(), req)
		_, forkErr := b.Fork(t.Context(), "s", "", name)
		_, snapErr := b.Snapshot(t.Context(), "s", name)
		for verb, err := range map[string]error{
			"new": newErr, "fork": forkErr, "snapshot": snapErr, "keep": s.Keep(t.Context(), name),
			"rm": b.Remove(t.Context(), name), "rollback": b.Rollback(t.Context(), name, ""),
		} {
			if !errors.Is(err, errs.ErrInvalid) {
				t.Errorf("%s %q: %v, want errs.ErrInvalid", verb, name, err)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x1b\n\x00") {
				t.Errorf("%s %q: its error carries control characters: %q", verb, name, err)
			}
		}
	}
	if err := s.Discard(t.Context()); err != nil {
		t.Error(err)
	}
	b.sound("hostile names")
	if got := names(filepath.Join(b.state, "sandboxes")); !slices.Equal(got, []string{"s"}) {
		t.Errorf("left: %q", got)
	}
}
