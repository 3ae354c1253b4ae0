package agenthook

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/workflow/view"
)

// leaseFile is the name of the file, in the directory of a sandbox, that ties the sandbox to an agent's
// session.
const leaseFile = "lease.json"

// A Lease ties a sandbox to the session of a coding agent that works in it. It is stored in a file in the
// sandbox's directory.
type Lease struct {
	// Sandbox is the sandbox's name, and Workspace its workspace on the host.
	Sandbox   string `json:"sandbox"`
	Workspace string `json:"workspace"`
	// View is the directory of the host that shows the workspace.
	View string `json:"view"`
	// Agent is the program, such as "claude"; Session is its session's id, and Worktree the name by which the agent
	// knows the clone, "" if the whole session works in it.
	Agent    string `json:"agent"`
	Session  string `json:"session"`
	Worktree string `json:"worktree,omitempty"`
	// Refuse lists the agent's tools that the policy of the sandbox refuses, as catalog.Tools does.
	Refuse []string `json:"refuse,omitempty"`
	// Owner is the agent's process. The view ends with it.
	Owner proc.Process `json:"owner"`
	// Ended is set when the agent's use of the sandbox is over, and the sandbox stays for its changes.
	Ended bool `json:"ended,omitempty"`
	// Checkpoints are the states that an undo can return to, oldest first. The first is from before any call.
	Checkpoints []Checkpoint `json:"checkpoints"`
	// Drift is the fingerprint of the last report of drift to the model.
	Drift string `json:"drift,omitempty"`

	text []byte // the JSON text from which the lease was read; nil after a change
}

// A Checkpoint is a named snapshot of a coding agent's sandbox, taken after a call of a tool, to which an
// undo can return.
type Checkpoint struct {
	// Name is the snapshot's name, made of the call's id.
	Name string `json:"name"`
	// Call is the call's id, "" for the state before any call. Tool is the tool's name.
	Call string `json:"call,omitempty"`
	Tool string `json:"tool,omitempty"`
	// Turn identifies the prompt that the call belongs to, where the agent says so.
	Turn string    `json:"turn,omitempty"`
	Time time.Time `json:"time"`
}

// view returns the view of the session's sandbox, the host directory that shows it to the agent.
func (l *Lease) view() view.View {
	return view.View{Sandbox: l.Sandbox, Workspace: l.Workspace, At: l.View, Owner: l.Owner.PID}
}

// readLease returns the lease of a sandbox, which ties it to the coding agent that works in it. state is the
// state directory. It needs no engine, for hooks that must answer in a millisecond. Errors: errs.ErrNotFound
// (no agent works in it), errs.ErrCorrupt.
func readLease(state, sandbox string) (*Lease, error) {
	data, err := leaseText(state, sandbox)
	if err != nil {
		return nil, err
	}
	return parseLease(sandbox, data)
}

// parseLease returns the lease of a sandbox from its JSON text. Errors: errs.ErrCorrupt.
func parseLease(sandbox string, data []byte) (*Lease, error) {
	l := &Lease{text: data}
	if err := exactjson.Decode(data, l); err != nil {
		return nil, &errs.Error{Op: "reading the lease of", Path: sandbox, Kind: errs.ErrCorrupt, Err: err}
	}
	l.Sandbox = sandbox // it may have been renamed since
	return l, nil
}

// leaseText returns the JSON text of the lease of a sandbox. Errors: errs.ErrNotFound.
func leaseText(state, sandbox string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(catalog.SandboxDir(state, sandbox), leaseFile))
	if err == nil && len(data) == 0 { // the power failed
		err = os.ErrNotExist
	}
	return data, errs.With("reading the lease of", sandbox, err)
}

// leaseAt returns the lease, which ties a sandbox to an agent, of the sandbox that a view shows to the agent.
// state is the state directory. Errors: those of readLease, but errs.ErrInvalid if a person has opened the view.
func leaseAt(state, sandbox string) (*Lease, error) {
	l, err := readLease(state, sandbox)
	if errors.Is(err, errs.ErrNotFound) {
		return nil, errs.New("running an agent in", sandbox, errs.ErrInvalid,
			"a person opened this directory with snapfs open; start the agent in the real workspace", "snapfs open --close "+errs.Quoted(sandbox))
	}
	return l, err
}

// save writes the lease, which ties the sandbox to a coding agent, into the sandbox's directory, atomically.
// It does not wait for the disk, which would take most of the time of a hook: after a power failure no
// session continues.
func (l *Lease) save(e *engine.Engine) error {
	data, err := exactjson.Encode(l)
	if err != nil {
		return err
	}
	path := filepath.Join(e.Catalog().Path(l.Sandbox), leaseFile)
	return errs.With("writing the lease of", l.Sandbox, catalog.ReplaceQuickly(path, data))
}

// update changes the lease, which ties the sandbox to a coding agent, by the function change and saves it. It
// reads the lease again, under the lock of the sandbox, so that hooks that run at once do not overwrite each
// other's changes. Errors: also errs.ErrNotFound.
func (l *Lease) update(ctx context.Context, e *engine.Engine, change func(*Lease)) error {
	h, err := e.Catalog().Lock(ctx, l.Sandbox)
	if err != nil {
		return err
	}
	defer h.Release()
	return l.updateLocked(e, change)
}

// updateLocked changes the lease as update does. The caller has the lock of the sandbox.
func (l *Lease) updateLocked(e *engine.Engine, change func(*Lease)) error {
	text, err := leaseText(e.StateDir(), l.Sandbox)
	if err != nil {
		return err
	}
	if l.text == nil || !bytes.Equal(text, l.text) { // another hook may have changed the lease
		now, err := parseLease(l.Sandbox, text)
		if err != nil {
			return err
		}
		*l = *now
	}
	l.text = nil
	change(l)
	return l.save(e)
}

// Leases returns the leases, each of which ties a sandbox to the session of an agent, of all sandboxes in
// which agents work or worked, the newest first. It skips those that cannot be read.
func Leases(e *engine.Engine) (all []*Lease) {
	records := e.Catalog().ReadCached().Records // what cannot be read has no readable lease either
	slices.SortFunc(records, func(a, b *catalog.Record) int { return b.Created.Compare(a.Created) })
	for _, r := range records {
		if l, err := readLease(e.StateDir(), r.Name); err == nil {
			all = append(all, l)
		}
	}
	return all
}

// LeaseOf returns the lease of a sandbox, which ties the sandbox to the coding agent that works in it; nil if
// none does. Errors: errs.ErrCorrupt.
func LeaseOf(e *engine.Engine, sandbox string) (*Lease, error) {
	l, err := readLease(e.StateDir(), sandbox)
	if errors.Is(err, errs.ErrNotFound) {
		return nil, nil //nolint:nilnil // no lease is the usual case
	}
	return l, err
}
