package agentrun

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/workflow/agentsetup"
)

// op is the operation in the errors of this package.
const op = "running the agent"

// A Session is one run of a coding agent in a sandbox. [Prepare] makes it.
type Session struct {
	// Agent is the agent's name, one of [agentsetup.Agents].
	Agent string
	// Notices are what a person should know, such as settings that were not copied.
	Notices []string

	kit     kit
	program string
	args    []string
	home    string
	// config is the directory of the agent's real configuration, and inside the one of the copy.
	config, inside string
	values         []string // of the keys, which no copied file may hold
	address        string   // of another server, or ""
}

// Prepare returns a session of the agent called name, with the command-line arguments args, in a sandbox to
// be made. It finds the agent's program and changes nothing. Errors: errs.ErrInvalid (an unknown agent, or a
// program where a sandbox does not see it), errs.ErrNotFound (its program is not installed, or this user has
// no home directory).
func Prepare(name string, args []string) (*Session, error) {
	k, ok := kits()[name]
	if !ok {
		return nil, errs.New(op, name, errs.ErrInvalid, "no such agent; there are "+strings.Join(agentsetup.Agents, ", "), "snapfs agent run claude")
	}
	s := &Session{Agent: name, kit: k, args: args}
	found, err := run.Look(k.program)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return nil, errs.New(op, name, errs.ErrNotFound, "no program named "+k.program+" in the directories of PATH", k.install)
	}
	s.program = found
	if s.home, err = os.UserHomeDir(); err != nil {
		return nil, &errs.Error{Op: op, Path: name, Kind: errs.ErrNotFound, Err: err, Hints: []string{"export HOME=DIRECTORY"}}
	}
	s.config = os.Getenv(k.variable)
	if !filepath.IsAbs(s.config) {
		s.config = filepath.Join(s.home, k.usual)
	}
	s.config = filepath.Join(s.config, k.folder)
	if real, err := filepath.EvalSymlinks(found); err == nil {
		for _, dir := range append(s.private(), "/tmp", "/dev", "/run") {
			if hostfs.Within(real, resolved(dir)) {
				return nil, errs.New(op, real, errs.ErrInvalid, "a sandbox does not see the program, since it has no "+dir+" of the host", k.install)
			}
		}
	}
	return s, nil
}

// place chooses the directory in the sandbox for the copy of the agent's settings: in the home directory, or
// in /tmp if the home directory lies in workspace. The changes in the workspace are the sandbox's result,
// which must not hold the settings.
func (s *Session) place(workspace string) {
	base := resolved(s.home)
	if hostfs.Within(base, resolved(workspace)) {
		base = "/tmp"
	}
	s.inside = filepath.Join(base, copies, s.Agent)
}

// Owns reports whether the file at path in the sandbox is the agent's alone: a copied setting, or a file that
// the agent stores beside the settings. Data of other programs is not, though a variable such as
// XDG_DATA_HOME leads them to a directory next to the settings; link says that the file is a symbolic link,
// as those to their real data are. Call Owns after [Session.Confine].
func (s *Session) Owns(path string, link bool) bool {
	shared := []string{s.inside} // directories in which other programs have theirs
	for _, name := range s.kit.programs {
		shared = append(shared, filepath.Join(s.inside, name))
	}
	if s.kit.folder == "" || !hostfs.Within(path, s.inside) {
		return hostfs.Within(path, filepath.Dir(s.inside))
	}
	for ; !slices.Contains(shared, path); path = filepath.Dir(path) {
		if dir := filepath.Dir(path); slices.Contains(shared, dir) {
			return link || filepath.Base(path) == s.kit.folder
		}
		link = false // only the entry of the shared directory itself may be one
	}
	return true
}

// copies is the name of the directory in a sandbox with the copied settings of agents.
const copies = ".snapfs-agent"

// Command returns the command line that starts the agent in the sandbox.
func (s *Session) Command() []string {
	if s.kit.launch == "" {
		return append([]string{s.program}, s.args...)
	}
	return append([]string{"/bin/sh", "-c", s.kit.launch + "\n" + `exec "$0" "$@"`, s.program}, s.args...)
}

// Confine changes the policy p of the sandbox that will be made for the agent, with the directory workspace.
// Each key of the agent becomes a secret that the network proxy inserts, and is no variable of the sandbox.
// The agent's real configuration is not shown, whatever the profile says. If a variable of the host such as
// ANTHROPIC_BASE_URL names another server, the network allows that one, and it gets the key. Errors:
// errs.ErrNotFound (no key), errs.ErrInvalid (a server without TLS, a key that has expired).
func (s *Session) Confine(p *catalog.Policy, workspace string) error {
	s.place(workspace)
	p.Expose = s.without(p, "expose", p.Expose, func(path string) bool {
		path = resolved(path)
		for _, one := range s.private() {
			one = resolved(one)
			if hostfs.Within(path, one) || hostfs.Within(one, path) {
				return true
			}
		}
		return false
	})
	given := map[string]bool{} // by secrets of the profile
	for _, one := range p.Secrets {
		given[one.As] = true
	}
	p.Env = s.without(p, "env", p.Env, func(pass string) bool {
		name, _, _ := strings.Cut(pass, "=")
		for _, k := range s.kit.keys {
			if name == k.variable || name == k.as || name == k.base {
				return true
			}
		}
		return name == s.kit.variable || slices.Contains(s.kit.programs, name)
	})
	for _, place := range s.private() {
		// The sandbox could remove a link in its copy, so the target is hidden too.
		for _, one := range []string{place, resolved(place)} {
			if _, err := os.Lstat(one); err == nil && !slices.Contains(p.Hide, one) {
				p.Hide = append(slices.Clip(p.Hide), one)
			}
		}
	}
	p.Env = append(p.Env, s.kit.variables...)
	for _, name := range s.kit.programs {
		p.Env = append(p.Env, name+"="+filepath.Join(s.inside, name))
	}
	p.Env = append(p.Env, s.kit.variable+"="+s.inside)
	return s.broker(p, given)
}

// private returns the host's paths of the agent's real configuration, which may hold credentials. The sandbox
// does not see them.
func (s *Session) private() []string {
	all := []string{s.config}
	for _, place := range s.kit.hidden {
		all = append(all, filepath.Join(s.home, place))
	}
	for _, name := range s.kit.programs {
		if dir := os.Getenv(name); filepath.IsAbs(dir) {
			all = append(all, filepath.Join(dir, s.kit.folder))
		}
	}
	return all
}

// without returns list, the values of the setting of the policy p called what (such as "env"), without those
// for which drop returns true. It also removes these from the list of the settings that p took from its
// profile.
func (s *Session) without(p *catalog.Policy, what string, list []string, drop func(string) bool) (kept []string) {
	for _, one := range list {
		if !drop(one) {
			kept = append(kept, one)
			continue
		}
		if p.Profile == nil {
			continue
		}
		taken := []string{}
		for _, t := range p.Profile.Taken {
			if t != what+" "+one {
				taken = append(taken, t)
			}
		}
		use := *p.Profile
		use.Taken = taken
		p.Profile = &use
	}
	return kept
}

// noKey returns the ErrNotFound that the agent has no key on this host. Its text has the variables and files
// that may hold one, and reasons, which say why a file did not.
func (s *Session) noKey(reasons []string) error {
	var variables, files []string
	for _, k := range s.kit.keys {
		if k.variable != "" {
			variables = append(variables, k.variable)
		} else if path := s.fileOf(k); len(files) == 0 || files[len(files)-1] != path {
			files = append(files, path)
		}
	}
	text := "no key: no variable " + strings.Join(variables, ", ") + ", and none in the file " + strings.Join(files, ", ")
	if len(reasons) > 0 {
		text += " (" + strings.Join(reasons, "; ") + ")"
	}
	return &errs.Error{Op: op, Path: s.Agent, Kind: errs.ErrNotFound, Err: errors.New(text), Hints: []string{"export " + variables[0] + "=…"}}
}
