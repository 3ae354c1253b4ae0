// Package timer makes systemd run `snapfs gc` regularly, for machines on which expired sandboxes would
// otherwise wait for the next snapfs command. It installs a systemd timer and a service: for the whole
// machine as root, otherwise for the user.
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

// The names of the systemd units that snapfs installs, and mark, the first line of each. A unit of these
// names without that line belongs to another program, and is neither replaced nor removed.
const (
	Timer   = "snapfs-gc.timer"
	Service = "snapfs-gc.service"
	mark    = "# Made by `snapfs timer install`; `snapfs timer remove` removes it."
)

// A Manager is the systemd that runs the timer for `snapfs gc`: that of the machine, or that of this user.
type Manager struct {
	// Dir is the directory of its units, and Booted a directory that exists while systemd runs (sd_booted(3)).
	Dir, Booted string
	// Control is the command line of systemctl, with its first arguments.
	Control []string
}

// For returns the systemd of the machine if root is set, otherwise that of this user. It does not check that
// systemd runs.
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

// Install writes the timer and service units, replacing older ones of snapfs. It makes systemd start the
// timer now and at each boot, and run args each time the duration every has passed. args is a command line
// with an absolute path. Install is atomic: after an error no new unit exists or is enabled.
//
// Errors: ErrNotSupported (systemd does not run here); ErrExists (a unit of that name belongs to another
// program); ErrDenied; *run.Error.
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
	if !there[Timer] { // it may be enabled although it did not start
		back.Push("disable "+Timer, func() error { return m.control(later, "disable", "--now", Timer) })
	}
	if err := m.control(ctx, "enable", "--now", Timer); err != nil {
		return err
	}
	back.Release()
	return nil
}

// A Status is the state of the systemd timer that runs `snapfs gc`, as `snapfs timer` prints it.
type Status struct {
	// Dir is the directory of its units.
	Dir       string `json:"dir"`
	Installed bool   `json:"installed"`
	// Enabled and Active are systemd's words for whether the timer starts with the machine and
	// whether it runs now: "enabled", "active".
	Enabled string `json:"enabled,omitempty"`
	Active  string `json:"active,omitempty"`
}

// Status returns the state of the timer that runs `snapfs gc`. Errors: ErrExists (a unit of that name belongs
// to another program); ErrNotSupported (there are units, but no systemd to ask).
func (m Manager) Status(ctx context.Context) (Status, error) {
	s := Status{Dir: m.Dir}
	var err error
	if s.Installed, err = m.ours(Timer); !s.Installed || err != nil {
		return s, err
	}
	if err := m.runs(); err != nil {
		return s, err
	}
	ask := func(what string) string { // systemctl exits with an error for a negative answer
		out, _ := run.Output(ctx, m.Control[0], append(m.Control[1:len(m.Control):len(m.Control)], what, Timer)...)
		return strings.TrimSpace(string(out))
	}
	s.Enabled, s.Active = ask("is-enabled"), ask("is-active")
	return s, nil
}

// Remove stops the timer that runs `snapfs gc`, removes its units, and reports whether there were any. If
// systemd does not run, it only removes the files. A repeated call does no harm. Errors: ErrExists (a unit of
// that name belongs to another program); ErrDenied; *run.Error.
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

// runs returns nil if the systemd that the Manager stands for (the machine's or the user's) runs, and
// otherwise an error with the reason why it cannot be used.
func (m Manager) runs() error {
	if _, err := os.Stat(m.Booted); err != nil {
		return &errs.Error{
			Op: "looking for systemd", Kind: errs.ErrNotSupported, Err: errors.New("systemd does not run on this machine, so nothing is installed"),
			Hints: []string{"crontab -e   # 17 * * * * snapfs gc"},
		}
	}
	if _, err := run.Look(m.Control[0]); err != nil {
		return &errs.Error{Op: "looking for systemd", Kind: errs.ErrNotSupported, Err: err}
	}
	return nil
}

// ours reports whether the systemd unit called name exists and snapfs made it. It returns ErrExists if
// another program made it.
func (m Manager) ours(name string) (bool, error) {
	path := filepath.Join(m.Dir, name)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, m.fail("reading", path, err)
	case !strings.HasPrefix(string(text), mark+"\n"):
		return false, &errs.Error{
			Op: "looking for the timer", Path: path, Kind: errs.ErrExists, Err: errors.New("not made by snapfs, left unchanged"),
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
	return errs.With(op, path, err)
}

func service(args []string) string {
	words := make([]string, 0, len(args))
	for _, a := range args {
		words = append(words, quote(a))
	}
	return mark + `
[Unit]
Description=End expired snapfs sandboxes and free disk space
Documentation=man:snapfs-gc(1)

[Service]
Type=oneshot
ExecStart=` + strings.Join(words, " ") + `
Nice=19
IOSchedulingClass=idle
`
}

// timer returns the text of the systemd timer unit that runs `snapfs gc` once in each period every. The timer
// counts from its own start, at boot or at login, so that a change of the clock has no effect.
func timer(every time.Duration) string {
	span := fmt.Sprintf("%dms", every.Milliseconds())
	return mark + `
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

// quote quotes a word of the command line that snapfs writes into a systemd unit (systemd.service(5), Command
// lines; systemd.unit(5), Specifiers).
func quote(word string) string {
	r := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$", "\n", `\n`, "\t", `\t`)
	return `"` + r.Replace(word) + `"`
}
