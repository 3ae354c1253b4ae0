package timer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/timer"
)

// world is a fake systemd that records its commands, and refuses those in the file "refuse". Tests cannot use
// the machine's own.
type world struct {
	timer.Manager
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir()}
	script := "#!/bin/sh\necho \"$*\" >> " + w.dir + "/told\n" +
		"if [ -e " + w.dir + "/refuse ] && grep -qx \"$*\" " + w.dir + "/refuse; then echo 'no bus' >&2; exit 1; fi\n" +
		"case $1 in is-*) echo \"${1#is-}\";; esac\n"
	w.put("systemctl", script, 0o755)
	w.Manager = timer.Manager{Dir: filepath.Join(w.dir, "units"), Booted: w.dir, Control: []string{filepath.Join(w.dir, "systemctl")}}
	return w
}

func (w *world) put(name, text string, mode os.FileMode) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) told() string {
	text, _ := os.ReadFile(filepath.Join(w.dir, "told"))
	if err := os.Remove(filepath.Join(w.dir, "told")); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Error(err)
	}
	return strings.ReplaceAll(string(text), "\n", "; ")
}

func (w *world) units() (names []string) {
	list, _ := os.ReadDir(w.Dir)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func (w *world) install() error {
	return w.Install(w.t.Context(), []string{"/bin/true", "--state", `/a "b" 50%$HOME`, "gc"}, time.Hour)
}

func TestInstallAndRemove(t *testing.T) {
	w := newWorld(t)
	for range 2 { // it may be repeated
		if err := w.install(); err != nil {
			t.Fatal(err)
		}
		if got := w.told(); got != "daemon-reload; enable --now snapfs-gc.timer; " {
			t.Errorf("systemd was told %q", got)
		}
	}
	const judge = "systemd-analyze" //nolint:misspell // a program's name
	if _, err := run.Look(judge); err == nil {
		out, err := run.Output(t.Context(), judge, "verify", "--man=no", filepath.Join(w.Dir, timer.Service), filepath.Join(w.Dir, timer.Timer))
		if err != nil || len(out) > 0 {
			t.Errorf("systemd judges: %v\n%s", err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(w.Dir, timer.Service))
	if want := `ExecStart="/bin/true" "--state" "/a \"b\" 50%%$$HOME" "gc"` + "\n"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v\n%s", err, text)
	}
	if s, err := w.Status(t.Context()); err != nil || !s.Installed || s.Enabled != "enabled" || s.Active != "active" {
		t.Errorf("%+v, %v", s, err)
	}
	w.told()
	if there, err := w.Remove(t.Context()); !there || err != nil || len(w.units()) > 0 {
		t.Errorf("%v, %v, left %q", there, err, w.units())
	}
	if got := w.told(); got != "disable --now snapfs-gc.timer; daemon-reload; " {
		t.Errorf("systemd was told %q", got)
	}
	if there, err := w.Remove(t.Context()); there || err != nil || w.told() != "" {
		t.Errorf("again: %v, %v", there, err)
	}
	if s, err := w.Status(t.Context()); err != nil || s.Installed {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestFailedInstallLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world)
		kind    error
		left    string
	}{
		"no systemd runs":      {func(w *world) { w.Booted += "/none" }, errs.ErrNotSupported, ""},
		"no systemctl":         {func(w *world) { w.Control = []string{w.dir + "/none"} }, errs.ErrNotSupported, ""},
		"no bus":               {func(w *world) { w.put("refuse", "daemon-reload\n", 0o644) }, nil, ""},
		"it cannot be enabled": {func(w *world) { w.put("refuse", "enable --now snapfs-gc.timer\n", 0o644) }, nil, ""},
		"another's unit":       {func(w *world) { w.put("units/snapfs-gc.timer", "[Timer]\n", 0o644) }, errs.ErrExists, "snapfs-gc.timer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.prepare(w)
			err := w.install()
			if err == nil || c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("%v", err)
			}
			if got := strings.Join(w.units(), " "); got != c.left {
				t.Errorf("left %q", got)
			}
			// The error of enabling the unit does not depend on that of starting it.
			if got := w.told(); strings.Contains(got, "enable") && !strings.HasSuffix(got, "; disable --now snapfs-gc.timer; daemon-reload; ") {
				t.Errorf("systemd was told %q", got)
			}
			if c.left == "" {
				return
			}
			if there, err := w.Remove(t.Context()); there || !errors.Is(err, errs.ErrExists) || len(w.units()) != 1 {
				t.Errorf("removing it: %v, %v", there, err)
			}
		})
	}
}
