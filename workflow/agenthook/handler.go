package agenthook

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/view"
)

// A Handler answers the hook events of one coding agent: messages that the agent sends, for example before it
// calls a tool. The command snapfs hook makes it.
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
	// PreviewTime bounds a command that runs to show its effects to the person, who waits for the answer.
	PreviewTime time.Duration
}

// ErrUnknown means that an agent sent a hook event of a name that this package does not handle.
var ErrUnknown = errors.New("not an event that snapfs answers")

// Handle answers the agent's event called name, whose JSON text is data, and returns the reply for the agent.
// An empty reply leaves the decision to the agent. After an error of WorktreeCreate the agent has no
// worktree. After one of PreToolUse the caller must have the agent refuse the call, because it would run
// outside of its sandbox ([Blocks]). Another error changes nothing for the session. Errors: also ErrUnknown.
func (h *Handler) Handle(ctx context.Context, name string, data []byte) ([]byte, error) {
	do := map[string]func(context.Context, *event) ([]byte, error){
		"WorktreeCreate":    h.worktreeCreate,
		"WorktreeRemove":    h.worktreeRemove,
		"PreToolUse":        h.preToolUse,
		"PermissionRequest": h.permissionRequest,
		"PostToolUse":       h.postToolUse,
		"PostToolBatch":     h.postToolBatch,
		"SubagentStop":      h.subagentStop,
		"SessionStart":      h.sessionStart,
		"SessionEnd":        h.sessionEnd,
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

// errBlock marks an error after which the coding agent must not make the call of a tool, because the call
// would run outside of the agent's sandbox.
var errBlock = errors.New("the call cannot run in its sandbox")

// Blocks reports whether the agent must refuse the call of a tool after err, an error of Handle.
func Blocks(err error) bool { return errors.Is(err, errBlock) }

// keepTime is how long a sandbox with changes stays after the end of the coding agent that worked in it,
// unless its policy sets another time (remove-after).
const keepTime = 7 * 24 * time.Hour

// worktreeCreate answers a coding agent's request for a git worktree to work in: it makes a sandbox instead,
// and replies with the path of the sandbox's view, a host directory that shows its files.
func (h *Handler) worktreeCreate(ctx context.Context, ev *event) ([]byte, error) {
	l, err := h.clone(ctx, ev, ev.Worktree)
	if err != nil {
		return nil, err
	}
	return []byte(l.View + "\n"), nil
}

// clone makes a sandbox for a coding agent, with a lease, which ties it to the agent's session, and a view, a
// host directory that shows its files. It is a fork of the sandbox that the session works in, or else a new
// one of the workspace around the event's directory. worktree is the agent's name for it, or "". After an
// error there is no sandbox.
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
	rec, err := h.makeSandbox(ctx, e, ev, worktree)
	if err != nil {
		return nil, err
	}
	l := &Lease{
		Sandbox: rec.Name, Workspace: rec.Workspace, View: view.At(e.StateDir(), rec.Name),
		Agent: h.Agent, Session: ev.Session, Worktree: worktree, Owner: owner,
	}
	if t := rec.Policy.Tools; t != nil {
		l.Refuse = t.Hook
	}
	if err = l.save(e); err == nil {
		_, err = view.Open(ctx, e, h.Viewer, l.view())
	}
	if err == nil {
		err = checkpoint(ctx, e, l, Checkpoint{})
	}
	if err != nil {
		undo := context.WithoutCancel(ctx)
		return nil, errors.Join(err, view.Close(undo, e, l.view()), e.Remove(undo, rec.Name))
	}
	return l, nil
}

func (h *Handler) makeSandbox(ctx context.Context, e *engine.Engine, ev *event, worktree string) (*catalog.Record, error) {
	name := cleanName(worktree)
	if name == "" {
		name = h.Agent
	}
	from := view.SandboxAt(h.State, ev.Dir)
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

// worktreeRemove answers the event that a coding agent no longer needs the worktree that it works in, and
// releases the sandbox that stands for it.
func (h *Handler) worktreeRemove(ctx context.Context, ev *event) ([]byte, error) {
	name := view.SandboxAt(h.State, ev.WorktreePath)
	if name == "" {
		return nil, nil
	}
	return nil, h.releaseAll(ctx, func(l *Lease) bool { return l.Sandbox == name })
}

// subagentStop answers the event that a subagent of a coding agent has ended. It releases the subagent's
// sandbox if nothing was changed in it. Otherwise the view, the host directory that shows the sandbox's
// files, stays for the agent that started the subagent.
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

// sessionStart answers the event that a session of a coding agent has begun. It gives the session a sandbox
// if h.All is set, and replies with a text about it for the model.
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

// placeText returns a text for the model of a coding agent that says in which sandbox and directory it works.
func placeText(l *Lease) string {
	return fmt.Sprintf("This session works in the snapfs sandbox %s, a copy of %s at %s. Commands run inside the sandbox; "+
		"its changes reach the real files only when the user runs: snapfs promote %s", l.Sandbox, l.Workspace, l.View, l.Sandbox)
}

// sessionEnd answers the event that a session of a coding agent has ended, and releases every sandbox of the
// session.
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
