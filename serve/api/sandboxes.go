package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/profile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/serve/token"
)

// A Sandbox describes a sandbox in the replies of the HTTP API: its name, state, policy and trees.
type Sandbox struct {
	Name      string            `json:"name"`
	ID        string            `json:"id" doc:"never used again, unlike the name"`
	Workspace string            `json:"workspace" doc:"the directory in which commands start, a copy of the real one"`
	Created   time.Time         `json:"created"`
	Origin    string            `json:"origin,omitempty" doc:"the sandbox that it was forked from"`
	Running   bool              `json:"running" doc:"whether processes run in it"`
	Paused    bool              `json:"paused" doc:"whether a limit has paused it"`
	Base      string            `json:"base" enum:"frozen,live" doc:"live: later edits of real files that the sandbox has not changed show inside"`
	Backends  []string          `json:"backends" nullable:"false"`
	Network   string            `json:"network"`
	Limits    map[string]string `json:"limits"`
	Snapshots []Snapshot        `json:"snapshots" nullable:"false"`
	At        string            `json:"at,omitempty" doc:"the snapshot from which its files last started"`
	Size      *int64            `json:"size,omitempty" doc:"bytes that it stores beyond its base, where known"`
	Behind    *int              `json:"behind,omitempty" doc:"how many paths of the real workspace have changed since, where known"`
	PausedAt  *time.Time        `json:"paused_at,omitempty" doc:"when its ttl will pause it"`
	RemovedAt *time.Time        `json:"removed_at,omitempty" doc:"when it will be removed"`
}

// A Snapshot describes, in replies of the HTTP API, a named state of a sandbox's files.
type Snapshot struct {
	Name   string    `json:"name"`
	Taken  time.Time `json:"taken"`
	Parent string    `json:"parent,omitempty" doc:"the snapshot that the sandbox was at before"`
	Why    *Why      `json:"why,omitempty" doc:"why snapfs took it by itself; not set where somebody asked for it"`
}

// A Why says, in the description of a [Snapshot], for which reason snapfs took it by itself.
type Why struct {
	Point     string   `json:"point" doc:"exec, limit, refusal, drift, plan, promotion, refresh or rollback"`
	When      string   `json:"when,omitempty" doc:"before or after"`
	Command   []string `json:"command,omitempty" doc:"the command, of which long ones are cut"`
	Exit      *int     `json:"exit,omitempty" doc:"its exit status"`
	Limit     string   `json:"limit,omitempty" doc:"the limit that was hit"`
	Host      string   `json:"host,omitempty" doc:"the destination that was refused"`
	Promotion string   `json:"promotion,omitempty" doc:"the last promotion of this state"`
	Text      string   `json:"text" doc:"the same in a few words"`
}

func snapshotOf(m catalog.NamedSnapshot) Snapshot {
	s := Snapshot{Name: m.Name, Taken: m.Taken, Parent: m.Parent}
	if w := m.Why; w != nil {
		s.Why = &Why{w.Point, w.When, w.Command, w.Status, w.Limit, w.Host, w.Promotion, keypoint.Text(*w)}
	}
	return s
}

func describe(i engine.Info) Sandbox {
	s := Sandbox{
		Name: i.Name, ID: i.ID, Workspace: i.Workspace, Created: i.Created, Origin: i.Origin, Running: i.Running, Paused: i.Paused != nil,
		Base: cmp.Or(i.Base, "frozen"), Backends: []string{}, Network: i.Policy.Network, Limits: i.Policy.Limits.Texts(), Snapshots: []Snapshot{}, At: i.At,
	}
	for _, t := range i.Trees {
		if !slices.Contains(s.Backends, t.Driver) {
			s.Backends = append(s.Backends, t.Driver)
		}
	}
	for _, m := range i.Snapshots {
		s.Snapshots = append(s.Snapshots, snapshotOf(m))
	}
	if i.Measured && i.Size >= 0 {
		n := int64(i.Size)
		s.Size = &n
	}
	if i.Drift.Known {
		s.Behind = &i.Drift.Paths
	}
	for _, t := range []struct {
		from time.Time
		to   **time.Time
	}{{i.PausedAt, &s.PausedAt}, {i.RemovedAt, &s.RemovedAt}} {
		if !t.from.IsZero() {
			*t.to = &t.from
		}
	}
	return s
}

// made returns the reply to a request that has just made the sandbox of rec: a description of the sandbox.
func made(rec *catalog.Record) *sandboxOutput {
	i := engine.Info{Record: rec, Base: "frozen"}
	for _, t := range rec.Trees {
		if !t.Frozen && (t.Path == "/" || rec.Workspace == t.Path || strings.HasPrefix(rec.Workspace, t.Path+"/")) {
			i.Base = "live"
		}
	}
	return &sandboxOutput{describe(i)}
}

// A Named is the part of a request's URL that names the sandbox which the request is about.
type Named struct {
	Name string `path:"name" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits, dots, underscores and dashes" doc:"the sandbox's name"`
}

type sandboxOutput struct{ Body Sandbox }

type listInput struct {
	Workspace string `query:"workspace" doc:"only sandboxes of this workspace"`
	After     string `query:"after" doc:"the last name of the page before"`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"how many to return"`
}

type listOutput struct {
	Body struct {
		Sandboxes []Sandbox `json:"sandboxes" nullable:"false" doc:"sorted by name"`
		Next      string    `json:"next,omitempty" doc:"after of the next page; missing on the last one"`
		Problems  []string  `json:"problems,omitempty" doc:"sandboxes that cannot be described"`
	}
}

// A NewSandbox is a client's request to make a sandbox. Fields that are not set mean the strictest policy.
type NewSandbox struct {
	Name       string            `json:"name,omitempty" maxLength:"64" pattern:"^([A-Za-z0-9][A-Za-z0-9._-]*)?$" patternDescription:"letters, digits, dots, underscores and dashes" doc:"by default one from the workspace's"`
	Workspace  string            `json:"workspace,omitempty" doc:"the absolute directory to copy; by default the one in which the server was started"`
	Backend    string            `json:"backend,omitempty" doc:"a backend by name; by default the best that works"`
	Frozen     bool              `json:"frozen,omitempty" doc:"require a base that later edits of the real files cannot change"`
	Network    string            `json:"network,omitempty" example:"allow:packages.example.com" doc:"none, host, or allow:RULES; by default none"`
	Limits     map[string]string `json:"limits,omitempty" doc:"as the flags of snapfs new, such as memory: 1G"`
	Expose     []string          `json:"expose,omitempty" doc:"secret paths to show"`
	Hide       []string          `json:"hide,omitempty" doc:"more paths to hide"`
	Env        []string          `json:"env,omitempty" doc:"variables of the server to pass, as NAME or NAME=VALUE"`
	Profile    string            `json:"profile,omitempty" doc:"the name or the absolute path of a profile, which needs the scope promote, or none; by default the restrictions of the workspace's"`
	BestEffort bool              `json:"best_effort,omitempty" doc:"run with less isolation where this host lacks some"`
	Prove      bool              `json:"prove,omitempty" doc:"test the isolation from inside at each start"`
	Queue      string            `json:"queue,omitempty" example:"30s" doc:"wait so long for capacity"`
	IfRoom     bool              `json:"if_room,omitempty" doc:"fail with 503 where this host has no capacity"`
}

type newInput struct{ Body NewSandbox }

type forkInput struct {
	Named
	Body *struct {
		Name string `json:"name,omitempty" maxLength:"64" pattern:"^([A-Za-z0-9][A-Za-z0-9._-]*)?$" patternDescription:"letters, digits, dots, underscores and dashes" doc:"the fork's name; by default one from the workspace's"`
		At   string `json:"at,omitempty" doc:"the snapshot to fork; by default the present files"`
	} `required:"false"`
}

func (a *API) addSandboxes() {
	const path = "/v1/sandboxes"
	add(a, route{scope: token.Read, method: http.MethodGet, path: path, id: "list-sandboxes", summary: "List sandboxes"}, a.list)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path, id: "new-sandbox", summary: "Make a sandbox", status: http.StatusCreated,
		detail: "Copies the real environment, in time that does not depend on its size. Atomic: after an error there is no sandbox.",
	}, a.newSandbox)
	add(a, route{scope: token.Read, method: http.MethodGet, path: path + "/{name}", id: "get-sandbox", summary: "Describe a sandbox"}, a.get)
	add(a, route{
		scope: token.Run, method: http.MethodDelete, path: path + "/{name}", id: "remove-sandbox", summary: "Remove a sandbox", status: http.StatusNoContent,
		detail: "Ends its processes and removes it with its changes and snapshots.",
	}, func(ctx context.Context, in *Named) (*struct{}, error) {
		return nil, a.with(ctx, func(e *engine.Engine) error { return e.Remove(ctx, in.Name) })
	})
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/{name}/fork", id: "fork-sandbox", summary: "Fork a sandbox", status: http.StatusCreated,
		detail: "Makes a new sandbox with the files of this one. Processes are not copied.",
	}, a.fork)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/{name}/stop", id: "stop-sandbox", summary: "End all processes of a sandbox", status: http.StatusNoContent,
	}, func(ctx context.Context, in *Named) (*struct{}, error) {
		return nil, a.with(ctx, func(e *engine.Engine) error { return e.Supervise.Stop(ctx, in.Name) })
	})
}

// with opens the engine of the state directory for one request and calls do with it.
func (a *API) with(ctx context.Context, do func(e *engine.Engine) error) error {
	e, err := a.o.Open(ctx)
	if err != nil {
		return err
	}
	return do(e)
}

// sandbox opens the engine for a request about the sandbox called name. Errors: ErrInvalid and ErrNotFound,
// both about the name.
func (a *API) sandbox(ctx context.Context, name string) (*engine.Engine, *catalog.Record, error) {
	if err := catalog.CheckName(name); err != nil {
		return nil, nil, err
	}
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	rec, err := e.Catalog().Get(name)
	return e, rec, err
}

func (a *API) list(ctx context.Context, in *listInput) (*listOutput, error) {
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	var workspaces []string
	if in.Workspace != "" {
		workspaces = []string{in.Workspace}
	}
	infos, err := e.List(ctx, false, workspaces...)
	out := &listOutput{}
	out.Body.Sandboxes = []Sandbox{}
	if err != nil {
		if len(infos) == 0 {
			return nil, err
		}
		out.Body.Problems = []string{err.Error()}
	}
	for _, i := range infos { // sorted by name
		if i.Name <= in.After {
			continue
		}
		if len(out.Body.Sandboxes) == in.Limit {
			out.Body.Next = out.Body.Sandboxes[in.Limit-1].Name
			break
		}
		out.Body.Sandboxes = append(out.Body.Sandboxes, describe(i))
	}
	return out, nil
}

func (a *API) get(ctx context.Context, in *Named) (*sandboxOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	info, err := e.Show(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &sandboxOutput{describe(info)}, nil
}

func (a *API) newSandbox(ctx context.Context, in *newInput) (*sandboxOutput, error) {
	req, err := a.request(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	rec, err := e.New(ctx, req)
	if err != nil {
		return nil, err
	}
	return made(rec), nil
}

func (a *API) fork(ctx context.Context, in *forkInput) (*sandboxOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	at, name := "", ""
	if in.Body != nil {
		at, name = in.Body.At, in.Body.Name
	}
	rec, err := e.Fork(ctx, in.Name, at, name)
	if err != nil {
		return nil, err
	}
	return made(rec), nil
}

// request converts a client's request for a new sandbox into the engine's form. Errors: ErrInvalid; those of
// [profile.Apply].
func (a *API) request(ctx context.Context, n NewSandbox) (hostfs.Request, error) {
	const op = "making a sandbox"
	if err := mayName(ctx, op, n.Profile); err != nil {
		return hostfs.Request{}, err
	}
	bad := func(format string, values ...any) error {
		return errs.New(op, "", errs.ErrInvalid, fmt.Sprintf(format, values...))
	}
	req := hostfs.Request{Name: n.Name, Workspace: cmp.Or(n.Workspace, a.o.Workspace), Backend: cmp.Or(n.Backend, a.o.Backend), Frozen: n.Frozen}
	given := map[string]bool{"net": n.Network != "", "expose": n.Expose != nil, "hide": n.Hide != nil, "env": n.Env != nil}
	p := &req.Policy
	p.Network, p.Expose, p.Hide, p.Env, p.BestEffort, p.Prove = cmp.Or(n.Network, "none"), n.Expose, n.Hide, n.Env, n.BestEffort, n.Prove
	for _, path := range slices.Concat([]string{req.Workspace}, n.Expose, n.Hide) {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			return req, bad("%q is no absolute path", path)
		}
	}
	req.Workspace = filepath.Clean(req.Workspace)
	if n.Name != "" {
		if err := catalog.CheckName(n.Name); err != nil {
			return req, err
		}
	}
	for _, v := range n.Env {
		if name, value, _ := strings.Cut(v, "="); name == "" || strings.ContainsAny(name, " \n\x00") || strings.ContainsRune(value, 0) {
			return req, bad("env takes NAME or NAME=VALUE, not %q", v)
		}
	}
	for name, text := range n.Limits {
		known, err := p.Limits.SetField(name, text)
		if !known {
			return req, bad("no limit is named %q", name)
		}
		if err != nil {
			return req, bad("%v", err)
		}
		given[name] = true
	}
	rules, allowed, err := hostfs.NetworkRules(p.Network)
	if err != nil {
		return req, bad("%v", err)
	}
	if allowed {
		p.Network = hostfs.AllowNet + rules.String()
	}
	if req.Admission, err = waiting(n.Queue, n.IfRoom); err != nil {
		return req, err
	}
	return req, profile.Apply(ctx, &req, n.Profile, func(flag string) bool { return given[flag] })
}

// mayName returns an error unless the client may choose the profile called name for a new sandbox, which
// needs the scope (right) promote: such a profile is trusted like the user's own, although a sandbox can have
// written its file. op is named in errors.
func mayName(ctx context.Context, op, name string) error {
	if name == "" || name == profile.None {
		return nil
	}
	if err := granted(ctx, token.Promote); err != nil {
		return errs.With("naming a profile", name, err)
	}
	if !policy.IsProfileName(name) && !filepath.IsAbs(name) {
		return errs.New(op, "", errs.ErrInvalid, fmt.Sprintf("the profile %q is neither a name nor an absolute path", name))
	}
	return nil
}

// waiting parses how long the start of a sandbox waits for free capacity of the host, such as "30s". With
// ifRoom it does not wait: without capacity it is refused. Errors: ErrInvalid.
func waiting(queue string, ifRoom bool) (o admission.Options, err error) {
	o.IfRoom = ifRoom
	if queue != "" {
		o.Queue, err = units.ParseDuration(queue)
	}
	if err == nil && o.Queue > 0 && ifRoom {
		err = errors.New("queue and if_room exclude each other")
	}
	if err != nil {
		return o, errs.New("making a sandbox", "", errs.ErrInvalid, err.Error())
	}
	return o, nil
}
