package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/workflow/agenthook"
	"github.com/spf13/cobra"
)

// The exit statuses of `snapfs hook`, the command that coding agents run around their tool calls, as Claude
// Code and Codex define them.
const (
	hookFailed = 1 // a line for the person; the session continues
	hookBlocks = 2 // the agent refuses the call of the tool, and the model reads the line
)

// maxEvent is how many bytes of an event from a coding agent `snapfs hook` reads at most. The event describes
// a tool call and contains its result. A longer one is cut off, and so is an error.
const maxEvent = 64 << 20

func newHook(a *app) *cobra.Command {
	var flags requestFlags
	h := agenthook.Handler{}
	cmd := &cobra.Command{
		Use:   "hook [flags] event",
		Short: "answer an event of a coding agent",
		Long: `Answers an event of a coding agent: its JSON text on standard input, the answer on standard
output. snapfs agent install writes the calls into the agent's configuration; the flags are
those of snapfs new, and hold for the sandboxes of the agent.

  WorktreeCreate              clone the workspace, print a directory that shows the clone
  WorktreeRemove              remove the clone, or keep it if it has changes
  SubagentStop, SessionEnd    the same for the clones of a subagent or a session
  SessionStart                describe the sandbox to the model
  PreToolUse                  run the shell's command in the clone; move paths into it
  PermissionRequest           run the shell's command in a throw-away clone, for at most 10 s
                              ($SNAPFS_PREVIEW_TIME, such as 30s), and show the person the
                              effects: codex and opencode at once, claude when it asks again
  PostToolUse, PostToolBatch  take a checkpoint named by the call; report drift to the model

A session whose directory is in no clone continues as without snapfs, unless --all is set.
Every other event, and one that snapfs cannot read, changes nothing: the status is 0 and
standard error has a line. Status 1 is a clone that could not be made, status 2 a call that
the agent must not make, because it would run outside of its sandbox.`,
		Example: "  snapfs hook --agent claude PreToolUse < event.json",
		Args:    exactly("event"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.hook(cmd.Context(), &h, &flags, args[0])
		},
		ValidArgs: []string{"WorktreeCreate", "WorktreeRemove", "SubagentStop", "SessionEnd", "SessionStart", "PreToolUse", "PermissionRequest", "PostToolUse", "PostToolBatch"},
	}
	flags.add(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { // the usual status would block the call of a tool
		return errors.Join(errs.NewStatus(hookFailed, "snapfs hook"), flagError(err))
	})
	cmd.Flags().StringVar(&h.Agent, "agent", "claude", "the `agent` that sends the event: claude, codex or opencode")
	cmd.Flags().BoolVar(&h.All, "all", false, "give every session a sandbox, not only worktrees and subagents")
	return cmd
}

// hook handles one event, such as a tool call, that a coding agent sends to `snapfs hook`. name is the
// agent's name for that kind of event, such as PreToolUse. Its errors have the exit statuses that the agent
// expects of a hook.
func (a *app) hook(ctx context.Context, h *agenthook.Handler, flags *requestFlags, name string) error {
	data, err := io.ReadAll(io.LimitReader(os.Stdin, maxEvent))
	if err == nil {
		err = a.prepareHook(h, flags)
	}
	var out []byte
	if err == nil {
		out, err = h.Handle(ctx, name, data)
	}
	switch {
	case err == nil:
		_, err = os.Stdout.Write(out)
		return err
	case errors.Is(err, agenthook.ErrUnknown):
		a.ui.notice(err.Error())
		return nil
	case agenthook.Blocks(err):
		return errors.Join(errs.NewStatus(hookBlocks, "snapfs hook "+name), err)
	case name == "PreToolUse" && h.All: // the session has a sandbox, so the call must not run outside of it
		return errors.Join(errs.NewStatus(hookBlocks, "snapfs hook "+name), err)
	case name == "WorktreeCreate":
		return errors.Join(errs.NewStatus(hookFailed, "snapfs hook "+name), err)
	}
	a.ui.notice(fmt.Sprintf("hook %s: %v", name, err))
	return nil
}

// prepareHook sets those fields of the handler of a coding agent's events that depend on this process: the
// state directory, how to open the engine, and how to start snapfs again.
func (a *app) prepareHook(h *agenthook.Handler, flags *requestFlags) error {
	state, err := a.openState()
	if err == nil {
		state, err = absolute(state)
	}
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(state); err == nil {
		state = real
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	h.State, h.Program = state, []string{self}
	if usual, err := usualState(); err != nil || usual != state {
		h.Program = append(h.Program, "--state", state)
	}
	h.Open = func(ctx context.Context) (*engine.Engine, error) {
		a.onlyReads = true // what has expired, the sweeper removes
		return a.engine(ctx)
	}
	if h.LookTime, err = durationFrom("SNAPFS_DRIFT_TIME", lookTime); err != nil {
		return err
	}
	if h.PreviewTime, err = durationFrom("SNAPFS_PREVIEW_TIME", previewTime); err != nil {
		return err
	}
	h.Viewer = viewer(a)
	h.Request = func(ctx context.Context, dir string) (hostfs.Request, error) {
		if flags.workspace == "" {
			workspace, err := hostfs.Workspace(dir)
			if err != nil {
				return hostfs.Request{}, err
			}
			flags.workspace = workspace
		}
		req, _, err := flags.request(ctx, a)
		return req, err
	}
	return nil
}

// previewTime is how long `snapfs hook` lets a command run in a throw-away clone, to show its effects to the
// person who decides about the real call, unless SNAPFS_PREVIEW_TIME says another time. Then it ends the
// command.
const previewTime = 10 * time.Second

// viewer returns a function that finds the program snapfs-fuse. That program shows a sandbox's files in a
// directory of the host, for `snapfs open` and for coding agents whose tools read there.
func viewer(a *app) func() ([]string, error) {
	return func() ([]string, error) {
		program, err := run.Beside("snapfs-fuse", a.ui.notice)
		return program, errs.With("showing the sandbox", "", err)
	}
}
