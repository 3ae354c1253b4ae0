package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/probe"
	"github.com/snapfs/snapfs/isolate/internal/seatbelt"
)

// always lists the protections that every container has on Linux and that the sandbox of macOS does not
// provide.
var always = []string{"a view of its own of the machine's files", "processes out of sight", "filter of system calls"}

// lacking returns the protections that the spec, or every container, requires and that macOS
// does not provide.
func (s Spec) lacking() []string {
	list := append([]string{}, always...)
	add := func(asked bool, what string) {
		if asked {
			list = append(list, what)
		}
	}
	add(s.IDs != Same, "users of its own")
	add(s.Network == NetworkEdge, "a network by name")
	add(s.Hostname != "", "a host name of its own")
	add(s.Resolver.IsValid(), "a name server of its own")
	add(len(s.Rlimits) > 0, "limits of each process")
	add(len(s.Digests) > 0, "programs with a digest")
	add(len(s.Cgroups) > 0, "control groups")
	return list
}

// settle returns the level of protection in force, or an error if macOS lacks a part of it and
// [Spec.BestEffort] is not set.
func (s Spec) settle() (Level, error) {
	list := s.lacking()
	if !s.BestEffort {
		return Level{}, &errs.Error{
			Op: "starting", Kind: errs.ErrNotSupported, Err: errors.New("the sandbox of macOS cannot give " + strings.Join(list, ", ")),
			Hints: []string{"snapfs run --best-effort …"},
		}
	}
	if s.Network == NetworkEdge { // fail closed: a network restricted to names becomes none
		s.Network = NetworkNone
	}
	return Level{IDs: Same, Network: s.Network, Missing: list}, nil
}

// profile returns the profile for sandbox-exec(1), which allows writes only to the copies of the trees and to
// the temporary directories.
func (s Spec) profile() (string, error) {
	p := seatbelt.Policy{Network: s.Network == NetworkHost}
	tmp := os.TempDir()
	if s.Tmp != "" {
		tmp = s.Tmp
	}
	p.Write = append(p.Write, real(tmp))
	for _, m := range s.Mounts {
		switch {
		case m.Overlay != nil || m.Served != nil:
			return "", &errs.Error{Op: "mounting", Path: m.Target, Kind: errs.ErrNotSupported, Err: errors.New("needs Linux: macOS gives a process no mounts of its own")}
		case m.Source != "" && m.Source != m.Target && !m.ReadOnly:
			p.Write = append(p.Write, real(m.Source))
		}
	}
	for _, h := range s.Hide {
		p.Hide = append(p.Hide, s.place(h))
	}
	for _, r := range s.ReadOnly {
		p.ReadOnly = append(p.ReadOnly, s.place(r))
	}
	text, err := p.Text()
	if err != nil {
		return "", &errs.Error{Op: "writing a profile for " + probe.SandboxExec, Kind: errs.ErrNotSupported, Err: err}
	}
	return text, nil
}

// place returns the path on the host for the path inside, which a command in a container uses on Linux: there
// is no mount on macOS, so it lies in the copy of the innermost tree that contains it.
func (s Spec) place(inside string) string {
	best := Mount{Target: "/", Source: "/"}
	for _, m := range s.Mounts {
		rest, ok := strings.CutPrefix(inside, m.Target)
		if m.Source != "" && ok && (rest == "" || rest[0] == '/' || m.Target == "/") && len(m.Target) >= len(best.Target) {
			best = m
		}
	}
	return real(filepath.Join(best.Source, strings.TrimPrefix(inside, best.Target)))
}

// real resolves symbolic links in a path, as far as the path exists, since sandbox-exec(1) compares resolved
// paths.
func real(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(real(dir), filepath.Base(path))
	}
	return path
}
