package selftest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/isolate"
)

// ruleProbes are the names of the self-test's probes that try to break a rule of a profile, each in a sandbox of its
// own with such a rule. requestProbes are those among them that need network rules: they send requests to a server that
// this process serves.
var (
	ruleProbes    = append([]string{"data", "writable", "readable", "recorded", "tools", "tools-allow", "tools-digest", "tools-arguments", "other-name", "approval"}, requestProbes...)
	requestProbes = []string{"secret", "tokens", "http-method", "http-path", "labels", "ask", "base-url", "aws"}
)

// ruleTrials returns the tests of rules that a policy can have, each in a sandbox of its own with such a rule: the
// workspace is read-only or is not in a list of writable or readable paths, a file is to be recorded when it is read, a
// program is denied, is not in a list of allowed ones or has another content or other first arguments than the list
// says, a hidden file has another name in the workspace, and a result needs approval.
func (p *prover) ruleTrials() []trial {
	program := harmlessProgram("true", "test")
	self := p.program[0]
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	data := func(change func(*catalog.Data)) func(*catalog.Policy) {
		return func(policy *catalog.Policy) { policy.Data = changed(policy.Data, change) }
	}
	tools := func(change func(*catalog.Tools)) func(*catalog.Policy) {
		return func(policy *catalog.Policy) { policy.Tools = changed(policy.Tools, change) }
	}
	unread, readable := unlisted(p.req.Workspace, isolate.AlwaysReadable[:]), []string{pathlist.Escape(self)}
	if unread != p.req.Workspace { // where the list could not hold
		readable = append(readable, pathlist.Escape(p.req.Workspace))
	}
	return []trial{
		{probe: "data", args: []string{p.req.Workspace}, rule: data(func(d *catalog.Data) {
			d.ReadOnly = append(slices.Clone(d.ReadOnly), p.req.Workspace)
		})},
		{probe: "writable", args: []string{unlisted(p.req.Workspace, isolate.AlwaysWritable[:])}, landlock: true, rule: data(func(d *catalog.Data) { d.Writable = []string{} })},
		{probe: "readable", args: []string{unread}, landlock: true, rule: data(func(d *catalog.Data) {
			d.Readable, d.Writable = readable, nil
		})},
		p.recordedTrial(),
		{probe: "tools", args: []string{program}, rule: tools(func(t *catalog.Tools) {
			t.Deny = append(slices.Clone(t.Deny), program)
		})},
		{probe: "tools-allow", args: []string{program}, landlock: true, rule: tools(func(t *catalog.Tools) { t.Allow = []string{self} })},
		{probe: "tools-digest", args: []string{program}, landlock: true, refusal: isolate.ErrDigest, rule: tools(func(t *catalog.Tools) {
			t.Allow = []string{self, program + "@sha256:" + digestOf(program)} // of its path: no program has that content
		})},
		{probe: "tools-arguments", args: []string{program}, landlock: true, rule: tools(func(t *catalog.Tools) {
			t.Allow = []string{self, program + " " + prove.AllowedArgument}
		})},
		otherNameTrial(),
		approvalTrial(),
	}
}

// harmlessProgram returns the path of the first program in names that exists and has a single name. Each of names
// exits with status 0 whatever its only argument is. Rules with arguments refuse a program with further hard links,
// such as perf makes of programs that it has seen. If all have further ones, harmlessProgram returns the first that
// exists, or a path in /bin: the probe then reports that it could not try.
func harmlessProgram(names ...string) string {
	var found []string
	for _, name := range names {
		program, err := run.Look(name)
		if err == nil {
			program, err = filepath.EvalSymlinks(program)
		}
		st := new(unix.Stat_t)
		if err != nil || unix.Stat(program, st) != nil {
			continue
		}
		if st.Nlink == 1 {
			return program
		}
		found = append(found, program)
	}
	return append(found, "/bin/"+names[0])[0]
}

// changed returns a copy of the rules *old, or of no rules if old is nil, after change.
func changed[T any](old *T, change func(*T)) *T {
	var rules T
	if old != nil {
		rules = *old
	}
	change(&rules)
	return &rules
}

// unlisted returns the workspace, or the home directory if the workspace lies below one of always, where every sandbox
// may write or read: a path that is not allowed in a sandbox whose list has no path.
func unlisted(workspace string, always []string) string {
	for _, own := range always {
		if home, err := os.UserHomeDir(); err == nil && hostfs.Within(workspace, own) {
			return home
		}
	}
	return workspace
}

// requestTrials returns the tests of rules about requests that the network proxy reads: a secret of which only a
// placeholder is inside, a spent budget of tokens, a network rule that allows one method and one path, a file with a
// label, a connection that waits for a person, a base URL, and keys of AWS. host serves the requests that are allowed.
// It returns none for a request without network rules.
func (p *prover) requestTrials(host *probeHost) []trial {
	rules, allowed, _ := hostfs.NetworkRules(p.req.Policy.Network)
	if !allowed {
		return nil
	}
	if host.web == "" {
		host.web = "localhost:" + host.port // the probes report that they could not try
	}
	const name = secretVariable
	value := catalog.NewID() + catalog.NewID()
	all := []trial{
		{probe: "secret", args: []string{name, digestOf(value)}, rule: func(policy *catalog.Policy) {
			policy.Secrets = append(slices.Clone(policy.Secrets), newSecret(value, host.web))
		}},
		{probe: "tokens", args: []string{host.web}, rule: func(policy *catalog.Policy) {
			policy.Budget = &catalog.Budget{Tokens: prove.ProofBudget, Hosts: []string{host.webName}}
		}},
		{probe: "http-method", args: []string{host.web}},
		{probe: "http-path", args: []string{host.web}},
		labelsTrial(host),
		baseTrial(host),
		awsTrial(host),
	}
	if port, _ := strconv.ParseUint(host.port, 10, 16); port > 0 {
		if _, open := rules.Name(hostName, uint16(port)); !open { // else nobody is asked
			all = append(all, askTrial(host))
		}
	}
	for i, t := range all {
		more := host.webRules
		switch {
		case t.probe == "base-url", t.probe == "aws": // whose proxy speaks TLS
			more = host.rules
		case t.rule == nil && t.prepare == nil:
			more = host.webRulesHTTP
		}
		if all[i].network = p.req.Policy.Network; more != "" {
			all[i].network += "," + more
		}
	}
	return all
}

// recordedTrial returns the test in which a program reads a file of which the first read is an event. The
// file is in a workspace of its own.
func (p *prover) recordedTrial() trial {
	const name = "recorded"
	var file string
	prepare := func(req *hostfs.Request) (func(), error) {
		dir, err := tempWorkspace()
		if err != nil {
			return nil, err
		}
		file = filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		req.Workspace, req.Backend, req.Policy.Data = dir, "", &catalog.Data{Recorded: []string{pathlist.Escape(file)}} // those of the request may not hold there
		return func() { os.RemoveAll(dir) }, nil                                                                        //nolint:errcheck // it is a temporary directory
	}
	seen := func(r prove.Report, after uint64) prove.Report {
		if !r.WasTried() {
			return r
		}
		err := events.Read(p.e.cat.Dir(), after, func(e events.Event) error {
			if e.Type == events.FileRead && slices.Contains(e.Data.Paths, file) {
				r.Held, r.Happened = true, "an event says so"
			}
			return nil
		})
		if err != nil {
			return prove.Untried(name, []string{file}, err)
		}
		return r
	}
	return trial{probe: name, args: []string{name}, prepare: prepare, seen: seen}
}
