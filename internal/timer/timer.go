// Package timer has systemd run `snapfs gc` from time to time, on machines on which
// no next command comes to end what is due: a timer and a service, for the whole
// machine where root asks, otherwise for the user.
package timer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/undo"
)

// The units, and the line that each begins with. What does not begin so is not
// snapfs's, and is neither replaced nor removed.
const (
	Timer   = "snapfs-gc.timer"
	Service = "snapfs-gc.service"
	Mark    = "# Made by `snapfs timer install`; `snapfs timer remove` removes it."
)

// A Manager is a systemd that runs units of this user.
type Manager struct {
	// Dir is where its units lie, and Booted the directory that is there when systemd
	// runs (sd_booted(3)).
	Dir, Booted string
	// Control is systemctl, with its first arguments.
	Control []string
}

// For is the systemd of root, or that of the user.
func For(root bool) (Manager, error) {
	m := Manager{Dir: "/etc/systemd/system", Booted: "/run/systemd/system", Control: []string{"systemctl"}}
	if root {
		return m, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return m, &errs.Error{Op: "looking for the units of this user", Kind: errs.ErrNotFound, Err: err}
	}
	m.Dir, m.Control = filepath.Join(dir, "systemd/user"), []string{"systemctl", "--user"}
	return m, nil
}

// Install writes the units, replacing older ones of snapfs, and has systemd start the
// timer now and at each boot. args is the command that it runs, its program by an
// absolute path. Atomic: after an error no unit is there, or enabled, that was not before.
// Errors: errs.ErrNotSupported (no systemd runs here), ErrExists (a unit of that name
// is somebody else's), ErrDenied; *run.Error.
func (m Manager) Install(ctx context.Context, args []string, every time.Duration) (err error) {
	if err := m.runs(); err != nil {
		return err
	}
	units, there := map[string]string{Service: service(args), Timer: timer(every)}, map[string]bool{}
	for name := range units {
		if there[name], err = m.ours(name); err != nil {
			return err
		}
	}
	var back undo.Stack
	defer back.UndoInto(&err)
	later := context.WithoutCancel(ctx)
	known := false
	back.Push("have systemd look again", func() error {
		if !known {
			return nil
		}
		return m.control(later, "daemon-reload")
	})
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return m.fail("installing", m.Dir, err)
	}
	for _, name := range []string{Service, Timer} {
		path := filepath.Join(m.Dir, name)
		before, rerr := os.ReadFile(path)
		back.Push("write "+path, func() error {
			if rerr == nil {
				return os.WriteFile(path, before, 0o644)
			}
			return os.Remove(path)
		})
		if err := os.WriteFile(path, []byte(units[name]), 0o644); err != nil {
			return m.fail("installing", path, err)
		}
	}
	if err := m.control(ctx, "daemon-reload"); err != nil {
		return err
	}
	known = true
	if !there[Timer] { // it may be enabled, and not start
		back.Push("disable "+Timer, func() error { return m.control(later, "disable", "--now", Timer) })
	}
	if err := m.control(ctx, "enable", "--now", Timer); err != nil {
		return err
	}
	back.Release()
	return nil
}

// A Status is what is there of the timer.
type Status struct {
	// Dir is where its units lie.
	Dir       string `json:"dir"`
	Installed bool   `json:"installed"`
	// Enabled and Active are systemd's words for whether it starts with the machine, and
	// whether it runs now: "enabled", "active".
	Enabled string `json:"enabled,omitempty"`
	Active  string `json:"active,omitempty"`
}

// Status tells what is there. Errors: errs.ErrExists (a unit of that name is somebody
// else's), ErrNotSupported (units are there, and no systemd that could tell).
func (m Manager) Status(ctx context.Context) (Status, error) {
	s := Status{Dir: m.Dir}
	var err error
	if s.Installed, err = m.ours(Timer); !s.Installed || err != nil {
		return s, err
	}
	if err := m.runs(); err != nil {
		return s, err
	}
	ask := func(what string) string { // systemctl fails where the answer is no
		out, _ := run.Output(ctx, m.Control[0], append(m.Control[1:len(m.Control):len(m.Control)], what, Timer)...)
		return strings.TrimSpace(string(out))
	}
	s.Enabled, s.Active = ask("is-enabled"), ask("is-active")
	return s, nil
}

// Remove stops the timer and removes its units, and reports whether there were any.
// Without a systemd that runs, the files alone are removed. Safe to repeat.
// Errors: errs.ErrExists (a unit of that name is somebody else's), ErrDenied; *run.Error.
func (m Manager) Remove(ctx context.Context) (bool, error) {
	there := false
	for _, name := range []string{Timer, Service} {
		ours, err := m.ours(name)
		if err != nil {
			return false, err
		}
		there = there || ours
	}
	if !there {
		return false, nil
	}
	runs := m.runs() == nil
	if runs {
		if err := m.control(ctx, "disable", "--now", Timer); err != nil {
			return false, err
		}
	}
	for _, name := range []string{Timer, Service} {
		path := filepath.Join(m.Dir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, m.fail("removing", path, err)
		}
	}
	if !runs {
		return true, nil
	}
	return true, m.control(ctx, "daemon-reload")
}

// runs says why there is no systemd here, or nil.
func (m Manager) runs() error {
	if _, err := os.Stat(m.Booted); err != nil {
		return &errs.Error{
			Op: "looking for systemd", Kind: errs.ErrNotSupported, Err: errors.New("it does not run on this machine, so nothing is installed"),
			Hints: []string{"crontab -e   # 17 * * * * snapfs gc"},
		}
	}
	if _, err := run.Look(m.Control[0]); err != nil {
		return &errs.Error{Op: "looking for systemd", Kind: errs.ErrNotSupported, Err: err}
	}
	return nil
}

// ours reports whether a unit is there and snapfs's.
func (m Manager) ours(name string) (bool, error) {
	path := filepath.Join(m.Dir, name)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, m.fail("reading", path, err)
	case !strings.HasPrefix(string(text), Mark+"\n"):
		return false, &errs.Error{
			Op: "looking for the timer", Path: path, Kind: errs.ErrExists, Err: errors.New("it was not made by snapfs, and is left alone"),
		}
	}
	return true, nil
}

func (m Manager) control(ctx context.Context, args ...string) error {
	_, err := run.Output(ctx, m.Control[0], append(m.Control[1:len(m.Control):len(m.Control)], args...)...)
	return err
}

func (m Manager) fail(op, path string, err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &errs.Error{Op: op, Path: path, Kind: errs.KindOf(err), Err: err}
}

func service(args []string) string {
	words := make([]string, 0, len(args))
	for _, a := range args {
		words = append(words, quote(a))
	}
	return Mark + `
[Unit]
Description=End the snapfs sandboxes whose time has come, and give space back
Documentation=man:snapfs-gc(1)

[Service]
Type=oneshot
ExecStart=` + strings.Join(words, " ") + `
Nice=19
IOSchedulingClass=idle
`
}

// timer counts from when it was started, at boot or at login, so that a clock that is
// set changes nothing.
func timer(every time.Duration) string {
	span := fmt.Sprintf("%dms", every.Milliseconds())
	return Mark + `
[Unit]
Description=Runs snapfs gc from time to time

[Timer]
OnActiveSec=1min
OnUnitActiveSec=` + span + `
AccuracySec=1min

[Install]
WantedBy=timers.target
`
}

// quote writes a word of a command as systemd reads it (systemd.service(5), Command
// lines; systemd.unit(5), Specifiers).
func quote(word string) string {
	r := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$", "\n", `\n`, "\t", `\t`)
	return `"` + r.Replace(word) + `"`
}
