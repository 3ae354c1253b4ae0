package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/workflow/agentrun"
	"github.com/snapfs/snapfs/workflow/agentsetup"
	"github.com/spf13/cobra"
)

func agentRun(a *app) *cobra.Command {
	var flags requestFlags
	cmd := &cobra.Command{
		Use:   "run [flags] agent [-- argument...]",
		Short: "run a coding agent inside a sandbox, without its key",
		Long: `Runs claude, codex or opencode in a new sandbox, by the built-in profile agent-claude,
agent-codex or agent-opencode, or one of --profile. The agent's settings are copied in,
without credentials. Its key stays outside: the sandbox has a placeholder, which the network
proxy replaces in requests to the agent's model service alone. The key is a variable of this
shell, such as ANTHROPIC_API_KEY, or the agent's own sign-in.

What follows -- goes to the agent. snapfs exits with its status. The sandbox stays, under a
name that snapfs prints at the start, for you to look and to promote. It is removed if the
agent ended with status 0, reached no limit and changed nothing, unless --name is given.`,
		Example: `  snapfs agent run claude
  snapfs agent run claude --name fix --memory 8G -- -p 'make the tests pass'
  snapfs agent run codex -- exec 'make the tests pass'`,
		Annotations: map[string]string{passesStatus: ""},
		Args:        atLeast("agent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); len(args) > 1 && dash != 1 {
				return usageError(errors.New("write -- before the agent's own arguments"))
			}
			return a.agentRun(cmd.Context(), &flags, args[0], args[1:])
		},
	}
	flags.add(cmd)
	flags.addProve(cmd)
	flags.addEvidence(cmd)
	flags.addKeyPoints(cmd)
	cmd.Flags().StringVar(&flags.name, "name", "", "give the sandbox this `name`, and keep it in any case")
	cmd.ValidArgs = agentsetup.Agents
	return cmd
}

// agentRun runs a coding agent, with args as its arguments, in a sandbox of its own, and prints afterwards
// what it changed.
func (a *app) agentRun(ctx context.Context, flags *requestFlags, agent string, args []string) error {
	if !flags.given.Changed("profile") {
		flags.profile = "agent-" + agent
	}
	s, err := agentrun.Prepare(agent, args)
	if err != nil {
		return err
	}
	req, dir, err := flags.request(ctx, a)
	if err != nil {
		return err
	}
	if err := s.Confine(&req.Policy, req.Workspace); err != nil {
		return err
	}
	if err := checkHidden(req.Policy.Hide, req.Workspace, dir); err != nil {
		return err
	}
	e, err := a.engine(ctx)
	if err != nil {
		return err
	}
	rec, err := e.New(ctx, req)
	if err != nil {
		return err
	}
	if err := s.Furnish(ctx, e, rec.Name); err != nil {
		return errors.Join(err, e.Remove(context.WithoutCancel(ctx), rec.Name))
	}
	a.ui.notices(s.Notices)
	a.ui.notice(fmt.Sprintf("%s runs in the sandbox %s", agent, rec.Name))
	err = a.exec(ctx, rec.Name, dir, nil, s.Command(), false, admissionFlags{})
	keep := flags.name != "" || err != nil || a.status != 0 || a.limited
	return errors.Join(err, a.agentResult(context.WithoutCancel(ctx), e, rec, s.Owns, keep))
}

// An agentRunDocument is the JSON form of the result of `snapfs agent run`: the sandbox, the agent's exit status,
// and the changes of the workspace.
type agentRunDocument struct {
	Sandbox   string `json:"sandbox"`
	Workspace string `json:"workspace"`
	Status    int    `json:"status"`
	// Stays is false if snapfs removed the sandbox, since the agent ended with status 0 and nothing had changed.
	Stays bool `json:"kept"`
	changesDocument
}

// agentResult prints what a coding agent changed in the workspace of its sandbox, and the commands that may
// follow. It removes a sandbox in which nothing but files of the agent itself has changed, as own reports (see
// agentrun.Session.Owns), unless keep is set. It says the name of one that stays, also after an error.
func (a *app) agentResult(ctx context.Context, e *engine.Engine, rec *catalog.Record, own func(path string, link bool) bool, keep bool) error {
	removed := false
	defer func() {
		if !removed {
			a.ui.notice("kept as " + rec.Name)
			a.ui.hint("snapfs diff "+rec.Name, "snapfs promote "+rec.Name, "snapfs rm "+rec.Name)
		}
	}()
	now, err := e.Catalog().Get(rec.Name)
	if err != nil {
		return err
	}
	changes, err := e.Compare.Changes(ctx, now)
	if err != nil {
		return err
	}
	defer changes.Close()
	a.ui.notices(changes.FindCommits())
	somewhere := changedBeside(changes, own)
	changes.Limit([]string{now.Workspace})
	keep = keep || somewhere || now.LimitHit != nil || now.Paused != nil
	if a.ui.json {
		doc := agentRunDocument{Sandbox: now.Name, Workspace: now.Workspace, Status: a.status, Stays: keep, changesDocument: documentOf(changes)}
		err = a.ui.result(doc, func(io.Writer) error { return nil })
	} else if changes.Len() > 0 {
		err = printTable(os.Stderr, changes, 0, "snapfs diff "+now.Name)
	}
	switch {
	case err != nil:
		return err
	case !keep:
		changes.Close() // on fusecow its open directories would keep a server of the sandbox's files running
		if err = e.Remove(ctx, now.Name); err != nil {
			return err
		}
		removed = true
		a.ui.notice("nothing changed; the sandbox is removed (--name keeps it)")
	case changes.Len() == 0 && somewhere:
		a.ui.notice("nothing changed in the workspace, but elsewhere: snapfs diff " + now.Name)
	}
	return nil
}

// changedBeside reports whether anything changed in a sandbox but the agent's own files. It is true where that is
// not known.
func changedBeside(changes *compare.Changes, own func(path string, link bool) bool) bool {
	for _, p := range changes.Parts {
		other := func(c diff.Change) bool {
			link := c.New != nil && c.New.Mode.Type() == fs.ModeSymlink
			return !c.TimeOnly() && !own(filepath.Join(p.Root, c.Path), link)
		}
		if len(p.LostDirs) > 0 || slices.ContainsFunc(p.Changes, other) {
			return true
		}
	}
	return slices.ContainsFunc(changes.Git, func(r gitresult.Report) bool { return len(r.Refs) > 0 })
}
