package agenthook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/hostview"
	"github.com/snapfs/snapfs/workflow/view"
)

// anyViews reports whether any agent uses a view, a host directory that shows a sandbox's files, of this
// state directory. Most hooks find none, and end at once.
func (h *Handler) anyViews() bool {
	entries, err := os.ReadDir(view.Dir(h.State))
	return err == nil && len(entries) > 0
}

// leaseOf returns the lease, which ties a sandbox to an agent, of the sandbox in which the event's session
// works, or nil. If h.All is set, it makes a sandbox for a session that has none.
func (h *Handler) leaseOf(ctx context.Context, ev *event) (*Lease, error) {
	if name := view.SandboxAt(h.State, ev.Dir); name != "" {
		return leaseAt(h.State, name)
	}
	if !h.All || ev.Session == "" || ev.Dir == "" {
		return nil, nil //nolint:nilnil // a session without a sandbox
	}
	if l, err := h.sessionLease(ev.Session); err != nil || l != nil {
		return l, err
	}
	if os.Getenv("SNAPFS_SANDBOX") != "" {
		return nil, nil //nolint:nilnil // the agent itself runs in a sandbox
	}
	return h.clone(ctx, ev, "")
}

// sessionLease returns the lease, which ties a sandbox to an agent, of the sandbox in which the whole session
// and not a worktree of it works; nil if there is none.
func (h *Handler) sessionLease(session string) (*Lease, error) {
	entries, err := os.ReadDir(view.Dir(h.State))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		l, err := readLease(h.State, entry.Name())
		if err == nil && l.Session == session && l.Worktree == "" {
			return l, nil
		}
	}
	return nil, nil //nolint:nilnil // none is the usual case
}

// preToolUse answers the hook event of a coding agent before a call of a tool. It changes the call so that it
// works on the sandbox: a command runs inside, and a path of the real workspace becomes the path of the view,
// the host directory that shows the sandbox's files. If there is a preview of the command, it has the agent ask
// the person, with the effects in the question.
func (h *Handler) preToolUse(ctx context.Context, ev *event) ([]byte, error) {
	l, err := h.leaseOf(ctx, ev)
	if err != nil {
		return nil, errors.Join(errBlock, err)
	}
	seen, err := h.pendingPreview(ev)
	if l == nil {
		if err != nil || seen == "" {
			return nil, err
		}
		return output{Decision: "ask", Reason: seen}.encode(ev)
	}
	if err != nil {
		return nil, errors.Join(errBlock, err)
	}
	if err := l.refused(ev.Tool); err != nil {
		return nil, errors.Join(err, h.announceRefusal(ctx, l, ev.Tool))
	}
	var input map[string]json.RawMessage
	if err := json.Unmarshal(ev.Input, &input); err != nil {
		return nil, errors.Join(errBlock, fmt.Errorf("reading the input of %s: %w", ev.Tool, err))
	}
	if err := errors.Join(h.awaitCheckpoint(ctx, l), h.reopen(ctx, l)); err != nil {
		return nil, errors.Join(errBlock, err)
	}
	switch {
	case ev.Tool == "PowerShell":
		return nil, errors.Join(errBlock, errors.New("PowerShell would run outside of the sandbox "+l.Sandbox+": use the tool Bash"))
	case ev.runsShell():
		if err := h.wrap(input, ev, l); err != nil {
			return nil, errors.Join(errBlock, err)
		}
		o := output{Decision: "allow", Reason: "it runs in the snapfs sandbox " + l.Sandbox, Input: input}
		if seen != "" {
			o.Decision, o.Reason = "ask", seen
		}
		return o.encode(ev)
	case ev.Tool == "apply_patch":
		return h.patch(input, ev, l)
	}
	return l.intoView(input, ev)
}

// awaitCheckpoint waits until the last checkpoint of the agent's sandbox has been taken. The checkpoint must show the files
// from before the call, and the call may write through the view, which is not frozen while the checkpoint is taken.
func (h *Handler) awaitCheckpoint(ctx context.Context, l *Lease) error {
	if !keypoint.IsPromised(h.State, l.Sandbox) {
		return nil
	}
	e, err := h.Open(ctx)
	if err != nil {
		return err
	}
	held, err := e.Supervise.HoldAny(ctx, l.Sandbox)
	if err == nil {
		held.Release()
	}
	return err
}

// announceRefusal appends an event to the event log, and to the evidence log of a sandbox that has one: a tool
// of the coding agent was refused. Only the first call of a tool is an event, see [attempts.ToolCalls]. It
// returns an error if the event is not in both. The engine, which has the evidence log, is opened only for the
// event, since each hook is a process.
func (h *Handler) announceRefusal(ctx context.Context, l *Lease, tool string) error {
	d, ok := attempts.RefusedCall(catalog.SandboxDir(h.State, l.Sandbox), "hook", tool, catalog.Refused(l.Refuse, tool))
	if !ok {
		return nil
	}
	refused := events.Event{Type: events.AccessRefused, Subject: l.Sandbox, Data: d}
	e, err := h.Open(ctx)
	if err != nil { // the event is then in no evidence log
		err = errors.Join(err, events.New(h.State, func(string) {}, nil).TryAppend(refused))
		return unannounced(err)
	}
	rec, err := e.Catalog().Get(l.Sandbox)
	if err == nil {
		refused.SandboxID = rec.ID
	}
	return unannounced(errors.Join(err, e.Events().TryAppend(refused)))
}

// unannounced returns the error err of recording a refusal, with a text that says so, or nil for nil.
func unannounced(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the refusal was not recorded: %w", err)
}

// refused returns an error if the policy of the coding agent's sandbox forbids the tool, so that the agent
// does not make the call; else nil.
func (l *Lease) refused(tool string) error {
	entry := catalog.Refused(l.Refuse, tool)
	if entry == "" {
		return nil
	}
	return errors.Join(errBlock, fmt.Errorf("the policy of the sandbox %s refuses the tool %s (tools.hook %q)", l.Sandbox, tool, entry))
}

// fileTools are the names of the coding agents' own tools that take file paths; relative ones start at the
// session's directory. A relative path of another tool may mean something else, such as a path in a
// repository on a server.
var fileTools = []string{
	"Read", "Edit", "MultiEdit", "Write", "NotebookEdit", "Glob", "Grep", "LS",
	"read", "edit", "multiedit", "write", "glob", "grep", "list", "patch", "lsp",
}

// intoView replaces the paths in input, a call of an agent's tool, by those of the view, the host directory that
// shows the sandbox. It allows the call of a file tool that has a path there, since it then cannot reach the real
// files. Another tool may do more on the host than to use its path, so the agent must ask the person. A call that
// also has a path outside is left to the agent, or blocked if it would still have a path of the real workspace.
func (l *Lease) intoView(input map[string]json.RawMessage, ev *event) ([]byte, error) {
	o := output{Reason: "it works on the snapfs sandbox " + l.Sandbox}
	outside := ""
	for _, key := range []string{"file_path", "notebook_path", "path", "filePath"} {
		var path string
		if json.Unmarshal(input[key], &path) != nil || path == "" {
			continue
		}
		full := path
		if !filepath.IsAbs(full) {
			if !slices.Contains(fileTools, ev.Tool) {
				continue
			}
			full = filepath.Join(ev.Dir, full)
		}
		to := l.inView(full)
		if !hostfs.Within(to, l.View) {
			outside = to
			continue
		}
		o.Decision = "allow"
		if !staysInView(ev.Tool, input) {
			o.Decision = "ask"
		}
		if to == path {
			continue
		}
		text, err := json.Marshal(to)
		if err != nil {
			return nil, errors.Join(errBlock, err)
		}
		input[key], o.Input = text, input
	}
	if outside != "" && o.Input != nil {
		return nil, errors.Join(errBlock, fmt.Errorf("%s has a path in the workspace and, outside of it, %s", ev.Tool, pathlist.Printable(outside)))
	}
	if outside != "" || o.Decision == "" || o.Decision == "ask" && o.Input == nil {
		return nil, nil
	}
	return o.encode(ev)
}

// staysInView reports whether a call of the coding agent's tool, whose paths are in the view, uses nothing outside of
// it: the tool is one of the agent's own for files, and a pattern of file names neither begins at the root nor goes up.
func staysInView(tool string, input map[string]json.RawMessage) bool {
	if !slices.Contains(fileTools, tool) {
		return false
	}
	if !strings.EqualFold(tool, "glob") || input["pattern"] == nil {
		return true
	}
	var pattern string
	if json.Unmarshal(input["pattern"], &pattern) != nil || strings.Contains(pattern, "..") {
		return false
	}
	start := true // of the pattern, or of an alternative in it
	for _, c := range pattern {
		if start && (c == '/' || c == '~' || c == '\\') {
			return false
		}
		start = strings.ContainsRune("{,(|", c)
	}
	return true
}

// inView returns the path, in the host directory that shows the agent its sandbox (l.View), that stands for
// path in the real workspace. Other paths are returned unchanged.
func (l *Lease) inView(path string) string {
	path = filepath.Clean(path)
	if !hostfs.Within(path, l.Workspace) {
		return path
	}
	return l.View + strings.TrimPrefix(path, l.Workspace)
}

// reopen makes the view of a session's sandbox, the host directory that shows its files, again if the process
// that serves it was killed, or the sandbox was stopped.
func (h *Handler) reopen(ctx context.Context, l *Lease) error {
	if hostview.Alive(l.View) {
		return nil
	}
	e, err := h.Open(ctx)
	if err != nil {
		return err
	}
	if l.Owner, err = agentProcess(); err != nil {
		return err
	}
	opened, err := view.Open(ctx, e, h.Viewer, l.view())
	if err != nil || !opened { // another hook of the session has made it meanwhile
		return err
	}
	owner := l.Owner
	return l.update(ctx, e, func(l *Lease) { l.Owner, l.Ended = owner, false })
}

// wrap replaces the command in input, a coding agent's call of its shell tool, by one that runs it in the
// sandbox of l, in the session's directory.
func (h *Handler) wrap(input map[string]json.RawMessage, ev *event, l *Lease) error {
	command, err := ev.command()
	if err != nil {
		return err
	}
	input["command"], err = json.Marshal(h.wrapper(ev, l) + errs.ShellQuoted(command))
	return err
}

// wrapper returns the beginning of a command line that runs a command in the sandbox of l. The command
// follows as one quoted word.
func (h *Handler) wrapper(ev *event, l *Lease) string {
	var line strings.Builder
	for _, w := range slices.Concat(h.Program, []string{"exec", "-C", ev.Dir, l.Sandbox, "--", shell(), "-c"}) {
		line.WriteString(errs.ShellQuoted(w) + " ")
	}
	return line.String()
}

// shell returns the path of the shell in which coding agents expect their commands to run.
func shell() string {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}
