// Package learn observes a command and writes the smallest profile under which the command works. It runs the
// command in sandboxes in which only secrets are refused, and observes three things: the network destinations
// that the proxy decided on, the paths that the command changed, and the programs that it executed.
package learn

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
)

// maxPasses is how often at most [Of] runs a command to learn its profile. After each run it allows the
// network destinations that were refused, until none is refused any more.
const maxPasses = 10

// unused is the only network destination that the first run of a command to be learned may reach: no machine
// has this name (RFC 6761). So every real destination is refused and thereby noticed.
const unused = "learn.invalid:1"

// hostName is the name under which programs in a sandbox reach this host, see package network.
const hostName = "host.snapfs"

// A Learned lists the network destinations, programs and writable paths that a command used, and the profile
// made of them. [Of] makes it.
type Learned struct {
	Command []string `json:"command"`
	// Status is the exit status of the last run, and Passes the number of runs.
	Status int `json:"status"`
	Passes int `json:"passes"`
	// Net are the destinations, as network rules; Programs and Writable are the paths of [tools] and [data].
	Net      []string `json:"net"`
	Programs []string `json:"programs"`
	Writable []string `json:"writable"`
	// Looked lists the hidden files that the command looked for. The profile shows none of them.
	Looked []attempts.Attempt `json:"looked"`
	// NotLearned says, for a person to read, what the profile cannot have of what the command used.
	NotLearned []string `json:"not_learned"`
	// Profile is the profile, as TOML.
	Profile string `json:"profile"`
}

// Of learns the destinations, programs and paths that a command uses, by running it in new sandboxes made as
// req says. It allows the network destinations that a run was refused and runs the command again, until no
// new ones are refused; the result is that of the last run. The sandboxes and their changes are removed.
// Errors: those of [engine.Engine.Run]; errs.ErrNotSupported if system calls cannot be observed.
func Of(ctx context.Context, e *engine.Engine, req hostfs.Request, command engine.Command) (*Learned, error) {
	req.Policy.Observe = true
	rules := []string{unused}
	for pass := 1; ; pass++ {
		req.Policy.Network = "allow:" + strings.Join(rules, ",")
		s, err := e.Run(ctx, req, command)
		if err != nil {
			return nil, err
		}
		st, err := s.Wait(ctx)
		later := context.WithoutCancel(ctx)
		if err != nil {
			return nil, errors.Join(err, s.Discard(later))
		}
		if s.Attempts == nil {
			err = &errs.Error{Op: "learning", Kind: errs.ErrNotSupported, Err: errors.New("system calls cannot be observed: that needs seccomp of Linux 5.19")}
			return nil, errors.Join(err, s.Discard(later))
		}
		more := added(rules, s.Refused)
		if len(more) > len(rules) && pass < maxPasses {
			rules = more
			if err := s.Discard(later); err != nil {
				return nil, err
			}
			continue
		}
		l := &Learned{
			Command: command.Args, Status: st.ExitCode(), Passes: pass,
			Net: []string{}, Programs: []string{}, Writable: []string{}, Looked: []attempts.Attempt{}, NotLearned: []string{},
		}
		err = errors.Join(l.take(ctx, e, s), s.Discard(later))
		return l, err
	}
}

// added returns rules, network rules of a profile, with further rules that allow the destinations in refused.
func added(rules []string, refused []egress.RefusedAccess) []string {
	rules = slices.Clone(rules)
	for _, r := range refused {
		rule := r.Name
		switch {
		case r.Failed:
			continue
		case rule == "":
			rule = r.Addr.String()
			if r.Addr.Is6() {
				rule = "[" + rule + "]"
			}
		}
		if r.Port > 0 {
			rule += ":" + strconv.Itoa(int(r.Port))
		} else if r.Name == hostName {
			rule += ":1-65534" // a rule of this host must name ports, and all of them are none
		}
		if _, ok, err := hostfs.NetworkRules("allow:" + rule); err == nil && ok && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return rules
}

// take fills in l with the paths, programs and destinations that the command of the session s used, after the
// command has ended.
func (l *Learned) take(ctx context.Context, e *engine.Engine, s *engine.Session) error {
	changes, err := e.Compare.Changes(ctx, s.Record)
	if err != nil {
		return err
	}
	defer changes.Close()
	made := l.writes(changes)
	l.executes(s.Attempts.Programs(), made)
	for _, a := range s.Attempts.List() {
		if a.Kind == attempts.Hidden {
			l.Looked = append(l.Looked, a)
		}
	}
	for _, r := range s.Refused {
		if !r.Failed {
			l.NotLearned = append(l.NotLearned, fmt.Sprintf("net: %s%v: %s", r.Name, addrOf(r), r.Why))
		}
	}
	if err := l.reaches(e, s.Record.Name); err != nil {
		return err
	}
	l.Profile = l.text()
	return nil
}

// addrOf returns the address of a refused network access as text, or "" if the access has a name.
func addrOf(r egress.RefusedAccess) string {
	if r.Name != "" {
		return ""
	}
	return r.Addr.String()
}

// reaches sets l.Net to network rules for the destinations that the command in the sandbox called name
// connected to, and for the names that it only looked up.
func (l *Learned) reaches(e *engine.Engine, name string) error {
	list, err := e.Supervise.NetworkEvents(name)
	if err != nil {
		return err
	}
	connected, asked := map[string]bool{}, []string{}
	add := func(rule string) {
		if !slices.Contains(l.Net, rule) {
			l.Net = append(l.Net, rule)
		}
	}
	for _, ev := range list {
		host := ev.Name
		if host == "" && ev.Addr.IsValid() {
			if host = ev.Addr.String(); ev.Addr.Is6() {
				host = "[" + host + "]"
			}
		}
		switch {
		case !ev.Allowed || ev.Ended || host == "":
		case ev.Kind == "dns":
			asked = append(asked, host)
		case ev.Port > 0:
			connected[host] = true
			add(host + ":" + strconv.Itoa(int(ev.Port)))
		}
	}
	for _, host := range asked {
		if !connected[host] {
			add(host + ":443") // a lookup needs a rule with the name, whatever its port
		}
	}
	slices.Sort(l.Net)
	return nil
}

// always are directories of which each sandbox has its own, so that every command may write there and a
// profile need not list them.
var always = []string{"/tmp", "/dev", "/run"}

// writes sets l.Writable to the paths that a profile must make writable for these changes: each changed file,
// and the directory of each name that was made or removed. It returns the paths that did not exist before.
func (l *Learned) writes(changes *compare.Changes) (made map[string]bool) {
	made = map[string]bool{}
	for _, p := range changes.Parts {
		for _, c := range p.Changes {
			if c.Old == nil {
				made[filepath.Join(p.Root, c.Path)] = true
			}
		}
	}
	for _, p := range changes.Parts {
		for _, c := range p.Changes {
			path := filepath.Join(p.Root, c.Path)
			if c.Old == nil || c.New == nil {
				path = existing(filepath.Dir(path), made)
			}
			switch {
			case path == "/":
				l.not("data.writable: names directly in / were made or removed, and / as a whole cannot be writable")
			case slices.ContainsFunc(always, func(dir string) bool { return hostfs.Within(path, dir) }):
			case !slices.Contains(l.Writable, path):
				l.Writable = append(l.Writable, path)
			}
		}
	}
	l.Writable = outermost(l.Writable)
	return made
}

// not adds a text, for the user, about a part of the command's behaviour that the profile cannot allow to
// l.NotLearned, once.
func (l *Learned) not(text string) {
	if !slices.Contains(l.NotLearned, text) {
		l.NotLearned = append(l.NotLearned, text)
	}
}

// existing returns the nearest directory at or above dir that existed before the command ran. made has the
// paths that the command created.
func existing(dir string, made map[string]bool) string {
	for made[dir] {
		dir = filepath.Dir(dir)
	}
	return dir
}

// outermost returns those of paths that lie below none of the others, sorted, so that a profile lists each
// writable directory once.
func outermost(paths []string) []string {
	slices.Sort(paths)
	list := []string{}
	for _, p := range paths {
		if !slices.ContainsFunc(list, func(above string) bool { return hostfs.Within(p, above) }) {
			list = append(list, p)
		}
	}
	return list
}

// executes sets l.Programs to the rules of a profile that allow these programs. For a program that the
// command made itself, made has its path, and the rule names its directory instead: the file does not exist
// before the command runs.
func (l *Learned) executes(programs []string, made map[string]bool) {
	for _, p := range programs {
		rule := p
		if made[p] || slices.ContainsFunc(always, func(dir string) bool { return hostfs.Within(p, dir) }) {
			dir := existing(filepath.Dir(p), made)
			if i := slices.IndexFunc(always, func(own string) bool { return hostfs.Within(p, own) }); i >= 0 {
				dir = always[i]
			}
			rule = strings.TrimSuffix(dir, "/") + "/*"
		}
		if strings.ContainsAny(rule, " \t\n:?[") || rule == "/*" {
			l.not("tools.allow: no rule can name " + strconv.Quote(p))
		} else if !slices.Contains(l.Programs, rule) {
			l.Programs = append(l.Programs, rule)
		}
	}
}

// text returns the learned profile as TOML, the content of a profile file.
func (l *Learned) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Learned by snapfs from one command. Read it before you use it: what the command needs\n# under other circumstances is not in it.\n")
	fmt.Fprintf(&b, "about = %s\nversion = 1\n\n[sandbox]\n", quoted("learned from "+strings.Join(l.Command, " ")))
	if len(l.Net) == 0 {
		b.WriteString("net = \"none\"\n")
	} else {
		b.WriteString(list("net", l.Net))
	}
	b.WriteString("\n[tools]\n" + list("allow", l.Programs))
	b.WriteString("\n[data]\n" + list("writable", l.Writable))
	return b.String()
}

func list(key string, values []string) string {
	if len(values) == 0 {
		return key + " = []\n"
	}
	var b strings.Builder
	b.WriteString(key + " = [\n")
	for _, v := range values {
		b.WriteString("  " + quoted(v) + ",\n")
	}
	b.WriteString("]\n")
	return b.String()
}

// quoted returns a text as a string of TOML (a basic string) for the profile. It replaces bytes that are no
// UTF-8.
func quoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range strings.ToValidUTF8(text, "\uFFFD") {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Check returns an error unless l.Profile, the learned profile, is one that snapfs can read.
func (l *Learned) Check() error {
	_, err := policy.Parse("/learned.toml", []byte(l.Profile))
	return err
}
