package evidence

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
	"golang.org/x/sys/unix"
)

// begin creates the evidence log of a new sandbox, with an entry about its creation and the signed start
// statement. After an error the sandbox keeps no evidence, and is not created.
func (s *Store) begin(e events.Event) error {
	rec, err := s.cat.Get(e.Subject)
	if err != nil {
		return err
	}
	key, err := s.Key()
	if err != nil {
		return err
	}
	l := s.Log(e.SandboxID)
	if err := l.Create(); err != nil {
		return err
	}
	made, err := s.madeData(l, rec, e)
	if err == nil {
		err = l.Append(e.Type, made, true)
	}
	if err == nil {
		err = s.sign(l, key, statement.StartType, startName, audit.Began, func([]audit.Record) (map[string]any, error) {
			return map[string]any{
				"created": made, "isolation": "not measured yet: see the records of type " + events.SelfTested,
				"host": map[string]any{"system": Kernel(), "key": statement.KeyID(key.Public())},
			}, nil
		})
	}
	if err != nil {
		_ = os.RemoveAll(l.Dir()) // nothing is in it yet
		return errs.Wrap("beginning the evidence of "+rec.Name, l.Dir(), err)
	}
	return nil
}

// madeData returns the data of the evidence log's entry about the creation of a sandbox: user, host, policy
// and trees.
func (s *Store) madeData(l *audit.Log, rec *catalog.Record, e events.Event) (map[string]any, error) {
	data, err := dataOf(l, e)
	if err != nil {
		return nil, err
	}
	data["name"] = rec.Name
	data["by"] = asker()
	policy, err := policyData(l, &rec.Policy)
	if err != nil {
		return nil, err
	}
	data["policy"] = policy
	var trees []any
	for _, t := range rec.Trees {
		trees = append(trees, map[string]any{"path": strings.ToValidUTF8(t.Path, "�"), "backend": t.Driver, "base": string(t.Base)})
	}
	data["trees"] = trees
	for field, value := range map[string]any{"policy_digest": policy, "base_digest": trees} {
		text, err := audit.Canonical(value)
		if err != nil {
			return nil, err
		}
		data[field] = "sha256:" + audit.Digest(text)
	}
	return data, nil
}

// Kernel returns the name, the release and the version of the host's kernel, for the evidence of a sandbox.
func Kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "not known"
	}
	return strings.Join([]string{unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:])}, " ")
}

// asker returns the user who asked for the sandbox, for the evidence log; behind sudo, also the user who
// called it.
func asker() map[string]any {
	by := map[string]any{"uid": int64(os.Getuid())}
	if u, err := user.Current(); err == nil {
		by["user"] = u.Username
	}
	if id := os.Getenv("SUDO_UID"); id != "" && os.Getuid() == 0 {
		if n, err := strconv.ParseInt(id, 10, 64); err == nil {
			by["sudo_uid"] = n
		}
	}
	return by
}

// addRules adds the rules of the sandbox's policy p on programs, data, secrets and budgets to policy, the
// form of p for the evidence log. A secret appears with its name and the requests it is for, not with its
// source.
func addRules(policy map[string]any, p *catalog.Policy) {
	if t := p.Tools; t != nil {
		policy["tools"] = map[string]any{"allow_only": t.Allow != nil, "allow": valid(t.Allow), "deny": valid(t.Deny), "hook": valid(t.Hook), "mcp": valid(t.MCP)}
	}
	if d := p.Data; d != nil {
		policy["data"] = map[string]any{"writable_only": d.Writable != nil, "writable": valid(d.Writable), "read_only": valid(d.ReadOnly), "readable_only": d.Readable != nil, "readable": valid(d.Readable), "recorded": valid(d.Recorded), "secret": valid(d.Secret), "private": valid(d.Private)}
	}
	var secrets []any
	for _, s := range p.Secrets {
		one := map[string]any{"name": s.Name, "hosts": valid(s.Hosts), "methods": valid(s.Methods), "paths": valid(s.Paths)}
		if s.Base != nil {
			one["base_url"] = valid([]string{s.Base.String()})
		}
		secrets = append(secrets, one)
	}
	if secrets != nil {
		policy["secrets"] = secrets
	}
	if p.Budget != nil {
		budget := map[string]any{"hosts": valid(p.Budget.Hosts)}
		for name, ceiling := range p.Budget.Ceilings() {
			if *ceiling > 0 {
				budget[name] = strconv.FormatInt(*ceiling, 10)
			}
		}
		if len(p.Budget.Prices) > 0 {
			prices := map[string]any{}
			for _, one := range p.Budget.Prices {
				prices[strings.ToValidUTF8(one.Model, "�")] = fmt.Sprintf("input %d, cached %d, cache-write %d, output %d", one.Input, one.Cached, one.Written, one.Output)
			}
			budget["prices"] = prices
		}
		policy["budget"] = budget
	}
}

// policyData returns the sandbox's policy p in the form of an evidence log: values of variables redacted, the
// profile by its digest.
func policyData(l *audit.Log, p *catalog.Policy) (map[string]any, error) {
	limits := map[string]any{}
	for _, f := range p.Limits.Fields() {
		if text := f.Value.String(); text != "" {
			limits[f.Name] = text
		}
	}
	policy := map[string]any{"network": p.Network, "limits": limits, "best_effort": p.BestEffort, "prove": p.Prove}
	if len(p.Expose) > 0 {
		policy["expose"] = valid(p.Expose)
	}
	if len(p.Hide) > 0 {
		policy["hide"] = valid(p.Hide)
	}
	if len(p.Env) > 0 {
		hidden, err := l.Redact(p.Env)
		if err != nil {
			return nil, err
		}
		env := map[string]any{}
		for i, v := range p.Env {
			name, _, _ := strings.Cut(v, "=")
			env[strings.ToValidUTF8(name, "�")] = hidden[i]
		}
		policy["env"] = env
	}
	addRules(policy, p)
	if p.KeepEvidence != nil {
		policy["keep_evidence"] = p.KeepEvidence.String()
	}
	if p.Profile != nil {
		profile := map[string]any{"path": strings.ToValidUTF8(p.Profile.Path, "�"), "taken": valid(p.Profile.Taken), "left": valid(p.Profile.Left)}
		if text, err := os.ReadFile(p.Profile.Path); err == nil {
			profile["digest"] = "sha256:" + audit.Digest(text)
		}
		policy["profile"] = profile
	}
	return policy, nil
}

// sign signs a statement about the present state of the evidence log l, stores it in the file called file,
// and adds an entry to the log that names it. kind is the statement's type, and record the type of the entry.
// predicate makes the content from the log's entries.
func (s *Store) sign(l *audit.Log, key *statement.Key, kind, file, record string, predicate func([]audit.Record) (map[string]any, error)) error {
	return l.Seal(record, func(lines [][]byte, records []audit.Record) (map[string]any, error) {
		if len(records) == 0 {
			return nil, errors.New("the log is empty")
		}
		gap, err := audit.GapIn(records)
		if err != nil {
			return nil, err
		}
		tree, err := audit.TreeWithout(lines, gap)
		if err != nil {
			return nil, err
		}
		root, err := tree.Root(tree.Size())
		if err != nil {
			return nil, err
		}
		values, err := predicate(records)
		if err != nil {
			return nil, err
		}
		id := records[0].Sandbox
		values["sandbox"], values["log"] = id, map[string]any{"size": tree.Size(), "root": fmt.Sprintf("%x", root[:])}
		line, digest, err := key.Sign(statement.Statement{
			Subject:       []statement.Subject{{Name: statement.Origin(id), Digest: map[string]string{"sha256": fmt.Sprintf("%x", root[:])}}},
			PredicateType: kind, Predicate: values,
		})
		if err == nil {
			err = catalog.ReplaceFile(filepath.Join(l.Dir(), file), line, true)
		}
		return map[string]any{"statement": digest}, err
	})
}
