package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/workflow/agenthook"
	"github.com/snapfs/snapfs/workflow/agentsetup"
	"github.com/spf13/cobra"
	"znkr.io/diff/textdiff"
)

func newAgent(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "give coding agents sandboxes",
		Long: `Sets up a coding agent so that its sessions work in sandboxes: its worktrees and subagents
are clones of the whole environment, with uncommitted files and dependencies; its shell
commands run inside the clone; a checkpoint follows each call of a tool, for snapfs undo
--turn. The agent's own hooks call snapfs hook. docs/agents.md says for each agent what is
protected and what is not.`,
		Example: "  snapfs agent install claude\n  snapfs agent status\n  snapfs agent uninstall claude",
	}
	return group(cmd, agentInstall(a), agentUninstall(a), agentStatus(a), agentRun(a))
}

// setupFlags select which configuration of a coding agent `snapfs agent` changes, that of the project or of
// the user, and which hooks it installs there. yes leaves out the question.
type setupFlags struct{ project, all, preview, yes bool }

func (f *setupFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.project, "project", false, "change the configuration of this workspace, not the user's")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.ValidArgs = agentsetup.Agents
}

// setup returns the changes that install snapfs's hooks in the configuration of the coding agent with this
// name. The agent then runs `snapfs hook` before and after each call of a tool, with the flags in more.
func (a *app) setup(f setupFlags, agent string, more []string) (agentsetup.Setup, error) {
	s := agentsetup.Setup{Agent: agent, Flags: more, Preview: f.preview}
	if f.all {
		s.Flags = append([]string{"--all"}, s.Flags...)
	}
	program, err := os.Executable()
	if err != nil {
		return s, errs.With("setting up", agent, err)
	}
	s.Program = []string{program}
	if a.state != "" {
		state, err := absolute(a.state)
		if err != nil {
			return s, err
		}
		s.Program = append(s.Program, "--state", state)
	}
	if f.project {
		dir, err := workdir()
		if err == nil {
			s.Project, err = hostfs.Workspace(dir)
		}
		return s, err
	}
	return s, nil
}

func agentInstall(a *app) *cobra.Command {
	var f setupFlags
	cmd := &cobra.Command{
		Use:   "install [flags] agent [-- flag...]",
		Short: "write snapfs's hooks into an agent's configuration",
		Long: `Adds snapfs's hooks to the configuration of claude, codex or opencode, shows the change
first, and asks on a terminal. All else in the file stays as it is, byte for byte. What is
installed already is brought up to date.

With --preview, when the agent asks whether it may run a command, snapfs first runs it in a
throw-away clone for at most 10 seconds, and shows what it changed. You still decide.

Flags after -- are those of snapfs new, for the sandboxes of the agent: limits, --net,
--backend and so on. The file names this program and, with --state, its state directory.`,
		Example: "  snapfs agent install claude\n  snapfs agent install codex --all -- --net allow:packages.example.com --memory 4G",
		Args:    atLeast("agent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkHookFlags(args[1:]); err != nil {
				return err
			}
			s, err := a.setup(f, args[0], args[1:])
			if err != nil {
				return err
			}
			e, err := s.Install()
			if err != nil {
				return err
			}
			changed, err := a.edit(e, f.yes, "install", "installed already: "+e.Path)
			if err != nil {
				return err
			}
			if changed {
				a.ui.notice("installed in " + e.Path)
			}
			trust := a.afterInstall(cmd.Context(), s)
			return a.ui.result(agentEdit{s.Agent, e.Path, changed, patchOf(e), trust}, func(io.Writer) error { return nil })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "give every session a sandbox, not only worktrees and subagents")
	cmd.Flags().BoolVar(&f.preview, "preview", false, "show the effects of a command that the agent asks for, from a throw-away clone")
	return cmd
}

// checkHookFlags returns a usage error unless all args are flags of `snapfs hook`, the command that a coding
// agent runs around its tool calls.
func checkHookFlags(args []string) error {
	var flags requestFlags
	probe := &cobra.Command{Use: "hook", SilenceErrors: true, SilenceUsage: true}
	flags.add(probe)
	if err := probe.ParseFlags(args); err != nil {
		return usageError(flagError(err))
	}
	if rest := probe.Flags().Args(); len(rest) > 0 {
		return usageError(fmt.Errorf("%q is no flag of snapfs new", rest[0]))
	}
	return nil
}

func agentUninstall(a *app) *cobra.Command {
	var f setupFlags
	cmd := &cobra.Command{
		Use:   "uninstall [flags] agent",
		Short: "remove snapfs's hooks from an agent's configuration",
		Long: `Removes from the configuration of an agent what snapfs agent install has added, and nothing
else: the file is as it was before, byte for byte, unless it has been changed since. It
shows the change first, and asks on a terminal.`,
		Example: "  snapfs agent uninstall claude",
		Args:    exactly("agent"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.setup(f, args[0], nil)
			if err != nil {
				return err
			}
			e, err := s.Uninstall()
			if err != nil {
				return err
			}
			changed, err := a.edit(e, f.yes, "uninstall", "not installed: "+e.Path)
			if err != nil {
				return err
			}
			if changed {
				a.ui.notice("uninstalled from " + e.Path)
			}
			return a.ui.result(agentEdit{Agent: s.Agent, Path: e.Path, Changed: changed, Patch: patchOf(e)}, func(io.Writer) error { return nil })
		},
	}
	f.add(cmd)
	return cmd
}

// An agentEdit is the JSON form of the result of `snapfs agent install` and uninstall: whether the configuration file
// of a coding agent was changed, and how.
type agentEdit struct {
	Agent   string `json:"agent"`
	Path    string `json:"path"`
	Changed bool   `json:"changed"`
	Patch   string `json:"patch,omitempty"`
	// Trust is whether the agent trusts the hooks, an [agentsetup.Trust]; "" if it does not ask for trust.
	Trust string `json:"trust,omitempty"`
}

// patchOf returns a change of a coding agent's configuration file as a patch; "" if it is empty.
func patchOf(e agentsetup.Edit) string {
	if e.Empty() {
		return ""
	}
	return fmt.Sprintf("--- %s\n+++ %s\n%s", e.Path, e.Path, textdiff.Unified(string(e.Before), string(e.After)))
}

// edit shows a change of a coding agent's configuration file as a patch, asks the person unless yes is set,
// and writes the file. It reports whether it has written. do is the verb of the question, and nothing the
// message for an empty change.
func (a *app) edit(e agentsetup.Edit, yes bool, do, nothing string) (bool, error) {
	if e.Empty() {
		a.ui.notice(nothing)
		return false, nil
	}
	if !a.ui.json { // else it is a part of the result
		fmt.Fprint(a.ui.err, patchOf(e))
	}
	if !yes && !a.ui.agrees(do+" this?", "write the file", "change nothing") {
		a.ui.notice("changed nothing")
		return false, nil
	}
	return true, e.Write()
}

// afterInstall prints the steps that remain for the person after `snapfs agent install`, such as to trust the
// hooks, before the coding agent calls snapfs. It returns whether the agent trusts the hooks, an [agentsetup.Trust];
// "" if it does not ask for trust.
func (a *app) afterInstall(ctx context.Context, s agentsetup.Setup) string {
	switch s.Agent {
	case "codex":
		trust := agentsetup.CodexTrust(ctx, s)
		if trust != agentsetup.Trusted {
			a.ui.notice("codex skips hooks that you have not trusted, without a word (" + string(trust) + " now): start codex once and accept them with /hooks")
			a.ui.hint("snapfs agent status codex")
		}
		return string(trust)
	case "claude":
		a.ui.notice("sessions that run now read their hooks when they start")
	}
	return ""
}

// An agentRow describes, in `snapfs agent`, whether the configuration of a coding agent calls snapfs around
// its tool calls (hooks).
type agentRow struct {
	Agent     string `json:"agent"`
	Path      string `json:"path"`
	Installed bool   `json:"installed"`
	// Trust is whether the agent trusts the hooks, an [agentsetup.Trust]; "" if it does not ask for trust.
	Trust string `json:"trust,omitempty"`
}

// A sessionRow is a line of `snapfs agent` and its JSON form: a session of a coding agent that works in a
// sandbox.
type sessionRow struct {
	Sandbox     string `json:"sandbox"`
	Agent       string `json:"agent"`
	Session     string `json:"session"`
	Workspace   string `json:"workspace"`
	View        string `json:"view"`
	Running     bool   `json:"running"`
	Checkpoints int    `json:"checkpoints"`
}

type agentReport struct {
	Agents   []agentRow   `json:"agents"`
	Sessions []sessionRow `json:"sessions"`
}

func agentStatus(a *app) *cobra.Command {
	var f setupFlags
	cmd := &cobra.Command{
		Use:   "status [flags] [agent]",
		Short: "show which agents call snapfs, and their sandboxes",
		Long: `Shows for each agent whether snapfs's hooks are in its configuration, the user's or with
--project this workspace's; for codex also whether it trusts them, because it skips hooks
that the person has not accepted. Then it lists the sandboxes that agents work or worked in.`,
		Example: "  snapfs agent status\n  snapfs agent status codex --json",
		Args:    atMost("agent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			names := agentsetup.Agents
			if len(args) == 1 {
				names = args
			}
			r := agentReport{Agents: []agentRow{}, Sessions: []sessionRow{}}
			for _, name := range names {
				row, err := a.agentRow(cmd.Context(), f, name)
				if err != nil {
					return err
				}
				r.Agents = append(r.Agents, row)
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			for _, l := range agenthook.Leases(e) {
				if slices.Contains(names, l.Agent) {
					r.Sessions = append(r.Sessions, sessionRow{
						Sandbox: l.Sandbox, Agent: l.Agent, Session: l.Session, Workspace: l.Workspace, View: l.View,
						Running: !l.Ended && proc.Alive(l.Owner), Checkpoints: len(l.Checkpoints),
					})
				}
			}
			return a.ui.result(r, r.print)
		},
	}
	cmd.Flags().BoolVar(&f.project, "project", false, "show the configuration of this workspace, not the user's")
	cmd.ValidArgs = agentsetup.Agents
	return cmd
}

func (a *app) agentRow(ctx context.Context, f setupFlags, name string) (agentRow, error) {
	s, err := a.setup(f, name, nil)
	if err != nil {
		return agentRow{}, err
	}
	r := agentRow{Agent: name}
	if r.Path, err = s.Path(); err != nil {
		return r, err
	}
	r.Installed, err = s.Installed()
	if err == nil && r.Installed && name == "codex" {
		r.Trust = string(agentsetup.CodexTrust(ctx, s))
	}
	return r, err
}

func (r agentReport) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, g := range r.Agents {
		state := "not installed"
		if g.Installed {
			state = "installed"
		}
		if g.Trust != "" {
			state += ", " + g.Trust
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", g.Agent, state, visible(g.Path))
	}
	for _, s := range r.Sessions {
		state := "ended"
		if s.Running {
			state = "running"
		}
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\n", s.Sandbox, s.Agent, state, count(max(s.Checkpoints-1, 0), "checkpoint"), visible(s.View))
	}
	return t.Flush()
}
