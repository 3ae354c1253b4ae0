package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
)

// Rules are the limits within which a server acts for coding agents, such as the workspace and the policy of
// sandboxes. They are made from the flags of the person who starts the server.
type Rules struct {
	// State is the state directory, and Program the path of the snapfs program.
	State   string `json:"state"`
	Program string `json:"program"`
	// Usual is set if State is the directory that snapfs uses without --state, for this user and environment.
	Usual bool `json:"usual"`
	// Workspace, Backend, Frozen and Policy are those of every sandbox.
	Workspace string         `json:"workspace"`
	Backend   string         `json:"backend,omitempty"`
	Frozen    bool           `json:"frozen,omitempty"`
	Policy    catalog.Policy `json:"policy"`
	// Queue and IfRoom are the conditions for starting a sandbox, see [admission.Options].
	Queue  time.Duration `json:"queue_ns,omitempty"`
	IfRoom bool          `json:"if_room,omitempty"`
}

// request returns the request to the engine for a new sandbox called name within the limits that the server's
// rules set. less holds the further restrictions that the agent asked for. Errors: those of [Rules.tighten].
func (r *Rules) request(name string, less Less) (hostfs.Request, error) {
	p, err := r.tighten(less)
	if err != nil {
		return hostfs.Request{}, err
	}
	return hostfs.Request{
		Name: name, Workspace: r.Workspace, Backend: r.Backend, Frozen: r.Frozen, Policy: p,
		Admission: r.admission(),
	}, nil
}

// RefusesTool returns the entry of the policy in the server's rules that forbids agents the tool called name, one
// of those that the server offers by the Model Context Protocol; "" if there is none.
func (r *Rules) RefusesTool(name string) string {
	if r.Policy.Tools == nil {
		return ""
	}
	return catalog.Refused(r.Policy.Tools.MCP, name)
}

// admission says whether a new sandbox waits for free resources of the host, or is refused without them.
func (r *Rules) admission() admission.Options {
	return admission.Options{Queue: r.Queue, IfRoom: r.IfRoom}
}

// A Less holds the restrictions that an agent may ask for when it makes a sandbox, beyond those that the
// server's [Rules] impose.
type Less struct {
	NoNetwork bool              `json:"no_network,omitempty" jsonschema:"give the sandbox no network, even if this server allows one"`
	Limits    map[string]string `json:"limits,omitempty" jsonschema:"stricter limits by name, such as memory 1G, time 5m, pids 200 or disk 2G; none may exceed those of this server"`
}

// tighten returns the policy for a new sandbox: that of the server's rules with the restrictions of less
// added. Errors: ErrInvalid; ErrDenied for a limit that exceeds the one of the rules.
func (r *Rules) tighten(less Less) (catalog.Policy, error) {
	const op = "making a sandbox"
	p := r.Policy
	if less.NoNetwork {
		p.Network = "none"
	}
	fields := p.Limits.Fields()
	for name, text := range less.Limits {
		i := slices.IndexFunc(fields, func(f catalog.Limit) bool { return f.Name == name })
		if i < 0 {
			return p, errs.New(op, "", errs.ErrInvalid, fmt.Sprintf("no limit is named %q; the limits are %s", name, limitNames(fields)))
		}
		var wanted catalog.Limits
		if _, err := wanted.SetField(name, text); err != nil {
			return p, errs.New(op, "", errs.ErrInvalid, err.Error())
		}
		mine, other := fields[i].Value, wanted.Fields()[i].Value
		if had := mine.String(); !mine.Tighten(other) && other.String() != had {
			return p, errs.New(op, "", errs.ErrDenied, fmt.Sprintf("the limit %s is %s by the flags of this server, and %q is not stricter", name, had, text))
		}
	}
	return p, nil
}

func limitNames(fields []catalog.Limit) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// Covers returns an error if the sandbox of rec may do more than the server's rules allow, such as reach
// another network. An earlier server with wider flags can have made such a sandbox.
func (r *Rules) Covers(rec *catalog.Record) error {
	p, limit := rec.Policy, r.Policy
	var wider []string
	if p.Network != "none" && p.Network != "" && p.Network != limit.Network {
		wider = append(wider, "the network "+p.Network)
	}
	for _, more := range [][2][]string{{p.Expose, limit.Expose}, {limit.Hide, p.Hide}} {
		for _, one := range more[0] {
			if !slices.Contains(more[1], one) {
				wider = append(wider, one)
			}
		}
	}
	for _, variable := range p.Env {
		if !slices.Contains(limit.Env, variable) {
			name, _, _ := strings.Cut(variable, "=") // the value may be a secret
			wider = append(wider, "the variable "+name)
		}
	}
	wider = append(wider, widerRules(&p, &limit)...)
	if p.BestEffort && !limit.BestEffort {
		wider = append(wider, "best effort")
	}
	if limit.Prove && !p.Prove {
		wider = append(wider, "no self-test")
	}
	if t, ok := compare.WorkspaceTree(rec); r.Frozen && ok && !t.Frozen {
		wider = append(wider, "a live base")
	}
	own, bound := p.Limits.Fields(), limit.Limits.Fields()
	for i := range own {
		if own[i].Value.Tighten(bound[i].Value) { // changes the copy p only
			wider = append(wider, "no limit "+own[i].Name+" of "+bound[i].Value.String())
		}
	}
	if wider == nil {
		return nil
	}
	return &errs.Error{
		Op: "opening", Subject: rec.Name, Kind: errs.ErrDenied,
		Err:   errors.New("the sandbox was made with more than this server allows: " + strings.Join(wider, ", ")),
		Hints: []string{r.Command("rm", rec.Name) + "   # a person, then sandbox_new"},
	}
}

// widerRules returns in words what the policy p of a sandbox allows beyond limit by secrets, questions about the
// network, rules about programs and files, and the budget. Rules about programs and files count as wider if they
// differ.
func widerRules(p, limit *catalog.Policy) (wider []string) {
	for _, one := range p.Secrets {
		if !slices.ContainsFunc(limit.Secrets, func(s catalog.Secret) bool { return sameText(s, one) }) {
			wider = append(wider, "the secret "+one.Name)
		}
	}
	if p.Ask > 0 && limit.Ask == 0 {
		wider = append(wider, "questions about the network")
	}
	if limit.Tools != nil && !sameText(p.Tools, limit.Tools) {
		wider = append(wider, "other [tools]")
	}
	if limit.Data != nil && !sameText(p.Data, limit.Data) {
		wider = append(wider, "other [data]")
	}
	if limit.Budget != nil {
		if _, larger := p.Budget.Lowered(limit.Budget); len(larger) > 0 {
			wider = append(wider, "another budget of "+strings.Join(larger, ", "))
		}
	}
	return wider
}

// sameText reports whether a and b have the same JSON text, in which a record stores them.
func sameText(a, b any) bool {
	one, err := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(one, other)
}

// Command returns a command line of snapfs, with the arguments args, that a person may run. It has --state
// unless snapfs uses the state directory of the rules by default. It shows a character that a terminal would
// interpret as a question mark; such a command names no existing file.
func (r *Rules) Command(args ...string) string {
	list := []string{"snapfs"}
	if !r.Usual {
		list = append(list, "--state", r.State)
	}
	list = append(list, args...)
	for i, arg := range list {
		list[i] = tame(errs.Quoted(arg))
	}
	return strings.Join(list, " ")
}

// inside returns path, which may be relative to the workspace, as an absolute path in the workspace. Errors:
// ErrDenied for a path outside.
func (r *Rules) inside(path string) (string, error) {
	abs := path
	if !filepath.IsAbs(path) {
		abs = filepath.Join(r.Workspace, path)
	}
	abs = filepath.Clean(abs)
	rel, err := filepath.Rel(r.Workspace, abs)
	if path == "" || err != nil || !filepath.IsLocal(rel) {
		return "", errs.New("reading a path", path, errs.ErrDenied, "it lies outside the workspace "+r.Workspace)
	}
	return abs, nil
}

// allInside makes each of paths absolute, as [Rules.inside] does, and returns ErrDenied if one lies outside
// the workspace.
func (r *Rules) allInside(paths []string) ([]string, error) {
	list := make([]string, 0, len(paths))
	for _, p := range paths {
		abs, err := r.inside(p)
		if err != nil {
			return nil, err
		}
		list = append(list, abs)
	}
	return list, nil
}
