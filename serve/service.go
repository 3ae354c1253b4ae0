package serve

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/errs"
)

// A Service carries out the operations on sandboxes that a coding agent asks for, within its [Rules]. It is
// safe for concurrent use.
type Service struct {
	// Rules are the limits within which it acts.
	Rules Rules
	open  func(ctx context.Context) (*engine.Engine, error)
	// refused are the refused calls of tools that are about no sandbox.
	refused attempts.ToolCalls

	mu sync.Mutex
	// pending counts the sandboxes that calls of reserve have allowed and that may not exist yet.
	pending int
}

// New returns a Service that acts for coding agents within the rules r. open opens the engine of the rules'
// state directory; each operation calls it once.
func New(r Rules, open func(ctx context.Context) (*engine.Engine, error)) *Service {
	return &Service{Rules: r, open: open}
}

// mostSandboxes is the largest number of sandboxes that agents may have in one workspace. A request to make
// more fails with ErrNoSpace until an agent removes some.
const mostSandboxes = 64

// markFile is the file in a sandbox's directory in the catalogue that shows that an agent made the sandbox. A
// sandbox without it is the person's, and no agent may touch it.
const markFile = "agent.json"

// A mark is the content of markFile, the file that shows that an agent made a sandbox.
type mark struct {
	Made time.Time `json:"made"`
}

// setMark writes the file that marks the sandbox called name as made by an agent, so that agents may use it.
func setMark(e *engine.Engine, name string) error {
	data, err := json.Marshal(mark{time.Now()})
	if err != nil {
		return err
	}
	return e.Catalog().WriteFile(name, markFile, append(data, '\n'))
}

func marked(e *engine.Engine, name string) bool {
	_, err := os.Lstat(filepath.Join(e.Catalog().Path(name), markFile))
	return err == nil
}

// enter opens the engine and checks that the Service may act on the sandbox called name: an agent made it, in
// the workspace of the server's rules and with at most their rights. Errors: ErrInvalid and ErrNotFound for
// the name; ErrDenied.
func (s *Service) enter(ctx context.Context, name string) (*engine.Engine, *catalog.Record, error) {
	if err := catalog.CheckName(name); err != nil {
		return nil, nil, err
	}
	e, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	rec, err := e.Catalog().Get(name)
	if err != nil {
		return nil, nil, s.withNames(ctx, e, err)
	}
	if !marked(e, name) {
		return nil, nil, &errs.Error{
			Op: "opening", Subject: name, Kind: errs.ErrDenied, Err: errors.New("a person made this sandbox, and an agent may not use it"),
			Hints: []string{"sandbox_new", "sandbox_list"},
		}
	}
	if rec.Workspace != s.Rules.Workspace {
		return nil, nil, errs.New("opening", name, errs.ErrDenied, "its workspace is "+rec.Workspace+", and that of this server "+s.Rules.Workspace)
	}
	return e, rec, s.Rules.Covers(rec)
}

// withNames adds a hint for the agent to an ErrNotFound: the tool sandbox_list, which lists the sandboxes
// that exist, or sandbox_new if there are none. It returns other errors unchanged.
func (s *Service) withNames(ctx context.Context, e *engine.Engine, err error) error {
	if !errors.Is(err, errs.ErrNotFound) {
		return err
	}
	hint := "sandbox_new"
	if infos, lerr := s.list(ctx, e); lerr == nil && len(infos) > 0 {
		hint = "sandbox_list"
	}
	return errs.With("", "", err, hint)
}

// list returns the sandboxes that agents have made in the workspace that the server's rules name, oldest
// first.
func (s *Service) list(ctx context.Context, e *engine.Engine) ([]engine.Info, error) {
	infos, err := e.List(ctx, false, s.Rules.Workspace)
	if err != nil && infos == nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(i engine.Info) bool { return !marked(e, i.Name) })
	slices.SortFunc(infos, func(a, b engine.Info) int { return a.Created.Compare(b.Created) })
	return infos, nil
}

// A Sandbox describes a sandbox to the agent that made it: its name, workspace, state and limits.
type Sandbox struct {
	Sandbox     string            `json:"sandbox" jsonschema:"its name, the handle of every other tool"`
	Workspace   string            `json:"workspace" jsonschema:"the directory in which commands start, a copy of the real one"`
	Created     time.Time         `json:"created"`
	Origin      string            `json:"origin,omitempty" jsonschema:"the sandbox that it was forked from"`
	Running     bool              `json:"running" jsonschema:"whether processes run in it"`
	Base        string            `json:"base" jsonschema:"frozen: later edits of the real files do not show inside; live: those of unchanged files do"`
	Network     string            `json:"network"`
	Limits      map[string]string `json:"limits,omitempty"`
	Checkpoints []string          `json:"checkpoints,omitempty"`
	Whys        map[string]string `json:"checkpoint_whys,omitempty" jsonschema:"why snapfs took some of the checkpoints by itself"`
	Behind      int               `json:"behind,omitempty" jsonschema:"how many paths of the real workspace have changed since; see sandbox_drift"`
	RemovedAt   time.Time         `json:"removed_at,omitzero"`
}

func describe(i engine.Info) Sandbox {
	d := Sandbox{
		Sandbox: i.Name, Workspace: i.Workspace, Created: i.Created, Origin: i.Origin, Running: i.Running, Base: i.Base,
		Network: i.Policy.Network, RemovedAt: i.RemovedAt, Limits: map[string]string{},
	}
	for _, f := range i.Policy.Limits.Fields() {
		if text := f.Value.String(); text != "" {
			d.Limits[f.Name] = text
		}
	}
	for _, m := range i.Snapshots {
		d.Checkpoints = append(d.Checkpoints, m.Name)
		if m.Why != nil {
			if d.Whys == nil {
				d.Whys = map[string]string{}
			}
			d.Whys[m.Name] = keypoint.Text(*m.Why)
		}
	}
	if i.Drift.Known {
		d.Behind = i.Drift.Paths
	}
	return d
}

// A NewRequest is a coding agent's request to make a sandbox, for [Service.New].
type NewRequest struct {
	Name string `json:"name,omitempty" jsonschema:"its name; without one, snapfs makes one from the workspace's"`
	From string `json:"from,omitempty" jsonschema:"fork this sandbox, as it is now or at SANDBOX@CHECKPOINT, instead of the real machine"`
	Less
}

// New makes a sandbox from the real environment, or as a fork of another sandbox. Errors: ErrExists,
// ErrDenied, ErrInvalid, those of [engine.Engine.New]. After an error there is no new sandbox.
func (s *Service) New(ctx context.Context, q NewRequest) (Sandbox, error) {
	if q.From != "" {
		return s.fork(ctx, q)
	}
	req, err := s.Rules.request(q.Name, q.Less)
	if err != nil {
		return Sandbox{}, err
	}
	e, err := s.open(ctx)
	if err != nil {
		return Sandbox{}, err
	}
	done, err := s.reserve(ctx, e, 1)
	if err != nil {
		return Sandbox{}, err
	}
	defer done()
	rec, err := e.New(ctx, req)
	if err != nil {
		return Sandbox{}, err
	}
	return s.adopt(ctx, e, rec)
}

func (s *Service) fork(ctx context.Context, q NewRequest) (Sandbox, error) {
	if q.NoNetwork || len(q.Limits) > 0 {
		return Sandbox{}, errs.New("forking", q.From, errs.ErrInvalid, "a fork has the limits and the network of its origin")
	}
	from, state := splitAt(q.From)
	e, _, err := s.enter(ctx, from)
	if err != nil {
		return Sandbox{}, err
	}
	done, err := s.reserve(ctx, e, 1)
	if err != nil {
		return Sandbox{}, err
	}
	defer done()
	rec, err := e.ForkAdmitted(ctx, from, state, q.Name, s.Rules.admission())
	if err != nil {
		return Sandbox{}, err
	}
	return s.adopt(ctx, e, rec)
}

// reserve lets the caller make this many more sandboxes, or returns ErrNoSpace if agents would then have more
// than mostSandboxes. Calls at the same time count each other's reservations until they call done. Sandboxes
// of another server count once they exist.
func (s *Service) reserve(ctx context.Context, e *engine.Engine, more int) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos, err := s.list(ctx, e)
	if err != nil {
		return nil, err
	}
	if len(infos)+s.pending+more > mostSandboxes {
		return nil, &errs.Error{
			Op: "making a sandbox", Kind: errs.ErrNoSpace, Err: errors.New("agents have too many sandboxes in this workspace"),
			Hints: []string{"sandbox_remove"},
		}
	}
	s.pending += more
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pending -= more
	}, nil
}

// adopt marks the new sandbox of rec as made by an agent, so that agents may use it, and returns its
// description. If that fails, it removes the sandbox, in which nothing has run yet.
func (s *Service) adopt(ctx context.Context, e *engine.Engine, rec *catalog.Record) (Sandbox, error) {
	err := setMark(e, rec.Name)
	if err == nil {
		var info engine.Info
		if info, err = e.Show(ctx, rec.Name); err == nil {
			return describe(info), nil
		}
	}
	return Sandbox{}, errors.Join(err, e.Remove(context.WithoutCancel(ctx), rec.Name))
}

// A List is the reply to an agent that lists the sandboxes which agents have made in the workspace.
type List struct {
	Workspace string    `json:"workspace"`
	Network   string    `json:"network" jsonschema:"the network that a new sandbox gets"`
	Sandboxes []Sandbox `json:"sandboxes"`
}

// List returns the sandboxes that agents have in the workspace that the server's rules name, oldest first.
func (s *Service) List(ctx context.Context) (List, error) {
	l := List{Workspace: s.Rules.Workspace, Network: s.Rules.Policy.Network, Sandboxes: []Sandbox{}}
	e, err := s.open(ctx)
	if err != nil {
		return l, err
	}
	infos, err := s.list(ctx, e)
	for _, i := range infos {
		l.Sandboxes = append(l.Sandboxes, describe(i))
	}
	return l, err
}

// A Named is a coding agent's request about one sandbox that holds only the sandbox's name.
type Named struct {
	Sandbox string `json:"sandbox" jsonschema:"the sandbox's name"`
}

// A Removed is the reply to an agent's request to remove a sandbox: the name of the removed sandbox.
type Removed struct {
	Removed string `json:"removed"`
}

// Remove ends the processes of a sandbox and removes it with all its changes and checkpoints. Errors: those of
// [engine.Engine.Remove].
func (s *Service) Remove(ctx context.Context, q Named) (Removed, error) {
	if err := catalog.CheckName(q.Sandbox); err != nil {
		return Removed{}, err
	}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err == nil {
		err = e.Remove(ctx, q.Sandbox)
	}
	if err != nil {
		return Removed{}, err
	}
	return Removed{q.Sandbox}, nil
}
