// Package learn runs a command in sandboxes and makes a profile from what it used: the destinations that the
// network proxy decided on, the paths that the command changed, and the programs that it executed.
package learn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	"github.com/snapfs/snapfs/network"
)

// maxPasses is how often at most [Run] runs a command to learn its profile. After each run it allows the
// network destinations that were refused, until none is refused any more.
const maxPasses = 10

// unused is the only network destination that the first run of a command to be learned may reach: no machine
// has this name (RFC 6761). So every real destination is refused and thereby noticed.
const unused = "learn.invalid:1"

// hostName is the name under which programs in a sandbox reach this host, see package network.
const hostName = "host.snapfs"

// A Learned lists the network destinations, programs and writable paths that a command used, and the profile
// made of them. [Run] makes it.
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

// Run runs a command in new sandboxes of a request, until a run was refused no destination that it was not
// refused before, and returns what the last run used. The sandboxes and their changes are removed. Errors:
// those of
// [engine.Engine.Run]; errs.ErrNotSupported where system calls cannot be observed.
func Run(ctx context.Context, e *engine.Engine, req hostfs.Request, command engine.Command) (*Learned, error) {
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
		more := withRefused(rules, s.Refused)
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
		err = errors.Join(l.fill(ctx, e, s), s.Discard(later))
		return l, err
	}
}

// withRefused returns rules, the network rules of a run of the command to learn from, with rules added for
// the destinations that this run was refused. This host, its own network and the metadata service of a cloud
// machine stay refused: they have what no install script should get.
func withRefused(rules []string, refused []egress.RefusedAccess) []string {
	rules = slices.Clone(rules)
	for _, r := range refused {
		if _, _, special := network.Special(r.Addr); r.Failed || r.Name == hostName || r.Addr.IsValid() && special {
			continue
		}
		rule := hostOf(r.Name, r.Addr)
		if r.Port > 0 {
			rule += ":" + strconv.Itoa(int(r.Port))
		}
		if _, ok, err := hostfs.NetworkRules("allow:" + rule); err == nil && ok && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return rules
}

// fill fills in l, the rules of the profile to be learned, by what the command of the session s used until
// its end: paths, programs and network destinations.
func (l *Learned) fill(ctx context.Context, e *engine.Engine, s *engine.Session) error {
	changes, err := e.Compare.Changes(ctx, s.Record)
	if err != nil {
		return err
	}
	defer changes.Close()
	made := createdIn(changes)
	l.setWritable(changes, made)
	l.setPrograms(s.Attempts.Programs(), made)
	for _, a := range s.Attempts.List() {
		if a.Kind == attempts.Hidden {
			l.Looked = append(l.Looked, a)
		}
	}
	for _, r := range s.Refused {
		if !r.Failed {
			l.NotLearned = append(l.NotLearned, fmt.Sprintf("net: %s: %s", hostOf(r.Name, r.Addr), r.Why))
		}
	}
	if err := l.setNet(e, s.Record.Name); err != nil {
		return err
	}
	l.Profile = l.text()
	return nil
}

// hostOf returns a destination as network rules write it: its name, or its address, an IPv6 one in brackets.
func hostOf(name string, addr netip.Addr) string {
	switch {
	case name != "" || !addr.IsValid():
		return name
	case addr.Is6():
		return "[" + addr.String() + "]"
	}
	return addr.String()
}

// setNet sets l.Net, the network rules of the learned profile, to the destinations to which the command in
// the sandbox called name connected, and the names that it only looked up, with port 443.
func (l *Learned) setNet(e *engine.Engine, name string) error {
	list, err := e.Supervise.NetworkEvents(name)
	if err != nil {
		return err
	}
	connected, lookedUp := map[string]bool{}, []string{}
	add := func(rule string) {
		if !slices.Contains(l.Net, rule) {
			l.Net = append(l.Net, rule)
		}
	}
	for _, ev := range list {
		host := hostOf(ev.Name, ev.Addr)
		switch {
		case !ev.Allowed || ev.Ended || host == "":
		case ev.Kind == "dns":
			lookedUp = append(lookedUp, host)
		case ev.Port > 0:
			connected[host] = true
			add(host + ":" + strconv.Itoa(int(ev.Port)))
		}
	}
	for _, host := range lookedUp {
		if !connected[host] {
			add(host + ":443") // a lookup needs a rule with the name, whatever its port
		}
	}
	slices.Sort(l.Net)
	return nil
}

// alwaysWritable are directories of a sandbox's own, where every command may write, so that a learned profile
// does not list them.
var alwaysWritable = []string{"/tmp", "/dev", "/run"}

// createdIn returns the absolute paths in changes that the learned command created: those that did not exist
// before.
func createdIn(changes *compare.Changes) map[string]bool {
	created := map[string]bool{}
	for _, p := range changes.Parts {
		for _, c := range p.Changes {
			if c.Old == nil {
				created[filepath.Join(p.Root, c.Path)] = true
			}
		}
	}
	return created
}

// setWritable sets l.Writable to the paths that a profile must make writable for the command's changes: a
// changed file, and the directory of a name that was created or removed. created are the paths that did not
// exist before.
func (l *Learned) setWritable(changes *compare.Changes, created map[string]bool) {
	for _, p := range changes.Parts {
		for _, c := range p.Changes {
			path := filepath.Join(p.Root, c.Path)
			if c.Old == nil || c.New == nil {
				path = existing(filepath.Dir(path), created)
			}
			switch {
			case path == "/":
				l.noteNotLearned("data.writable: names directly in / were made or removed, and / as a whole cannot be writable")
			case slices.ContainsFunc(alwaysWritable, func(dir string) bool { return hostfs.Within(path, dir) }):
			case !slices.Contains(l.Writable, path):
				l.Writable = append(l.Writable, path)
			}
		}
	}
	l.Writable = outermost(l.Writable)
}

// noteNotLearned adds text, about something that the command used and for which the learned profile has no
// rule, to l.NotLearned once, for the person.
func (l *Learned) noteNotLearned(text string) {
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

// setPrograms sets l.Programs to the profile's rules that allow programs, the paths that the learned command
// executed. A program that the command made itself, one of made, cannot be named before it exists: the rule
// names its directory.
func (l *Learned) setPrograms(programs []string, made map[string]bool) {
	for _, p := range programs {
		rule := p
		if made[p] || slices.ContainsFunc(alwaysWritable, func(dir string) bool { return hostfs.Within(p, dir) }) {
			dir := existing(filepath.Dir(p), made)
			if i := slices.IndexFunc(alwaysWritable, func(own string) bool { return hostfs.Within(p, own) }); i >= 0 {
				dir = alwaysWritable[i]
			}
			rule = strings.TrimSuffix(dir, "/") + "/*"
		}
		if strings.ContainsAny(rule, " \t\n:?[") || rule == "/*" {
			l.noteNotLearned("tools.allow: no rule can name " + strconv.Quote(p))
		} else if !slices.Contains(l.Programs, rule) {
			l.Programs = append(l.Programs, rule)
		}
	}
}

// text returns the learned profile as TOML, the content of a profile file.
func (l *Learned) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Learned by snapfs from one command. Read it before you use it: a run of the command\n# that takes another path may need more.\n")
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
