package agenthook

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
)

// A Handler answers the events of one agent.
type Handler struct {
	// Agent is the agent's name, and State the state directory.
	Agent, State string
	// Program is the command line that runs snapfs on that state directory, for commands that it writes.
	Program []string
	// All gives every session a sandbox. Otherwise only worktrees and subagents that ask for one have a sandbox.
	All bool
	// Request returns the request for a sandbox of the workspace around a directory.
	Request func(ctx context.Context, dir string) (hostfs.Request, error)
	// Open opens the engine. Events that need none do without.
	Open func(ctx context.Context) (*engine.Engine, error)
	// Viewer returns the command line of the program that serves views.
	Viewer func() ([]string, error)
	// LookTime bounds the search of the real workspace for drift; their comparison has 5 ms more.
	LookTime time.Duration
}

// ErrUnknown means that an event is none that the package answers.
var ErrUnknown = errors.New("not an event that snapfs answers")

// Handle answers the event called name, whose JSON text is data, and returns the answer for the agent. An empty
// answer leaves the decision to the agent. After an error of WorktreeCreate the agent has no worktree; after one of
// PreToolUse the caller must have the agent refuse the call, because it would run outside of its sandbox
// ([Blocks]); another error changes nothing for the session. Errors: also ErrUnknown.
func (h *Handler) Handle(ctx context.Context, name string, data []byte) ([]byte, error) {
	do := map[string]func(context.Context, *event) ([]byte, error){
		"WorktreeCreate": h.worktreeCreate,
		"WorktreeRemove": h.worktreeRemove,
		"PreToolUse":     h.preToolUse,
		"PostToolUse":    h.postToolUse,
		"PostToolBatch":  h.postToolBatch,
		"SubagentStop":   h.subagentStop,
		"SessionStart":   h.sessionStart,
		"SessionEnd":     h.sessionEnd,
	}[name]
	if do == nil {
		return nil, fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	ev, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	return do(ctx, ev)
}

// errBlock marks an error after which the call of a tool must not go on.
var errBlock = errors.New("the call cannot run in its sandbox")

// Blocks reports whether an agent must refuse the call of a tool after this error of Handle.
func Blocks(err error) bool { return errors.Is(err, errBlock) }

// keepTime is how long a sandbox with changes stays after its agent, unless the request says otherwise.
const keepTime = 7 * 24 * time.Hour

// worktreeCreate makes a sandbox for a worktree and answers with the path of its view.
func (h *Handler) worktreeCreate(ctx context.Context, ev *event) ([]byte, error) {
	l, err := h.clone(ctx, ev, ev.Worktree)
	if err != nil {
		return nil, err
	}
	return []byte(l.View + "\n"), nil
}

// clone makes a sandbox of the workspace around the event's directory, or a fork of the sandbox that the session works
// in, with a lease and a view. After an error there is no sandbox.
func (h *Handler) clone(ctx context.Context, ev *event, worktree string) (*Lease, error) {
	owner, err := agentProcess()
	if err != nil {
		return nil, err
	}
	e, err := h.Open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := Reap(ctx, e); err != nil {
		e.Notice("what other sessions of agents left is not removed yet: " + err.Error())
	}
	dir, err := makeViewsDir(h.State)
	if err != nil {
		return nil, err
	}
	rec, err := h.makeSandbox(ctx, e, ev, worktree)
	if err != nil {
		return nil, err
	}
	l := &Lease{
		Sandbox: rec.Name, Workspace: rec.Workspace, View: filepath.Join(dir, rec.Name),
		Agent: h.Agent, Session: ev.Session, Worktree: worktree, Owner: owner,
	}
	if t := rec.Policy.Tools; t != nil {
		l.Refuse = t.Hook
	}
	if err = l.save(e); err == nil {
		err = h.open(ctx, e, l)
	}
	if err == nil {
		err = checkpoint(ctx, e, l, Checkpoint{})
	}
	if err != nil {
		undo := context.WithoutCancel(ctx)
		return nil, errors.Join(err, closeView(undo, e, l), e.Remove(undo, rec.Name))
	}
	return l, nil
}

// open makes the view of a new lease.
func (h *Handler) open(ctx context.Context, e *engine.Engine, l *Lease) error {
	unlock, err := lockView(e, l.Sandbox)
	if err != nil {
		return err
	}
	defer unlock()
	return openView(ctx, e, h.Viewer, l)
}

func (h *Handler) makeSandbox(ctx context.Context, e *engine.Engine, ev *event, worktree string) (*catalog.Record, error) {
	name := cleanName(worktree)
	if name == "" {
		name = h.Agent
	}
	from := sandboxAt(h.State, ev.Dir)
	if l, err := h.sessionLease(ev.Session); from == "" && h.All && err == nil && l != nil {
		from = l.Sandbox
	}
	var req hostfs.Request
	if from == "" {
		var err error
		if req, err = h.Request(ctx, ev.Dir); err != nil {
			return nil, err
		}
		if req.Policy.Limits.RemoveAfter == 0 {
			req.Policy.Limits.RemoveAfter = keepTime
		}
	}
	for n := 1; ; n++ {
		try := name
		if n > 1 {
			try += "-" + strconv.Itoa(n)
		}
		var rec *catalog.Record
		var err error
		if from != "" {
			rec, err = e.Fork(ctx, from, "", try)
		} else {
			req.Name = try
			rec, err = e.New(ctx, req)
		}
		const most = 100 // names of one worktree
		if n < most && errors.Is(err, errs.ErrExists) {
			continue
		}
		return rec, err
	}
}

// worktreeRemove releases the sandbox of a worktree.
func (h *Handler) worktreeRemove(ctx context.Context, ev *event) ([]byte, error) {
	name := sandboxAt(h.State, ev.WorktreePath)
	if name == "" {
		return nil, nil
	}
	return nil, h.releaseAll(ctx, func(l *Lease) bool { return l.Sandbox == name })
}

// subagentStop releases the sandbox of a subagent if it has changed nothing. Otherwise the view stays for the agent
// that the subagent reports to.
func (h *Handler) subagentStop(ctx context.Context, ev *event) ([]byte, error) {
	if ev.Subagent == "" || !h.anyViews() {
		return nil, nil
	}
	e, err := h.Open(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range Leases(e) {
		if l.Session != ev.Session || !strings.HasSuffix(l.Worktree, ev.Subagent) {
			continue
		}
		if n, err := changes(ctx, e, l.Sandbox); err != nil || n > 0 {
			return nil, err
		}
		return nil, release(ctx, e, l)
	}
	return nil, nil
}

// sessionStart gives the session a sandbox if every session has one, and removes what others left.
func (h *Handler) sessionStart(ctx context.Context, ev *event) ([]byte, error) {
	if !h.All && !h.anyViews() {
		return nil, nil
	}
	l, err := h.leaseOf(ctx, ev)
	if err == nil && l != nil {
		err = h.reopen(ctx, l)
	}
	if err != nil || l == nil {
		return nil, err
	}
	return output{Context: placeText(l)}.encode(ev)
}

// placeText tells the model where it works.
func placeText(l *Lease) string {
	return fmt.Sprintf("This session works in the snapfs sandbox %s, a copy of %s at %s. Commands run inside the sandbox; "+
		"its changes reach the real files only when the user runs: snapfs promote %s", l.Sandbox, l.Workspace, l.View, l.Sandbox)
}

// sessionEnd releases every sandbox of the session.
func (h *Handler) sessionEnd(ctx context.Context, ev *event) ([]byte, error) {
	if ev.Session == "" || !h.anyViews() {
		return nil, nil
	}
	return nil, h.releaseAll(ctx, func(l *Lease) bool { return l.Session == ev.Session })
}

func (h *Handler) releaseAll(ctx context.Context, which func(*Lease) bool) error {
	e, err := h.Open(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, l := range Leases(e) {
		if which(l) {
			failures = append(failures, release(ctx, e, l))
		}
	}
	return errors.Join(failures...)
}
