package main

import (
	"context"
	"os"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/local"
	"github.com/spf13/cobra"
)

func newMCP(a *app) *cobra.Command {
	var flags requestFlags
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "serve an agent's tools by the Model Context Protocol",
		Long: `Serves an agent by the Model Context Protocol on standard input and output, until its input
ends. The agent's program starts it. It gets tools to make sandboxes of this workspace, to
run commands in them, to compare, race and plan, and to promote.

The flags are those of snapfs new, and hold for every sandbox of the agent: it can ask for
less and never for more. It can use only sandboxes that an agent made in this workspace.
A promotion shows the person the plan and carries out exactly that plan, or nothing; if
the agent's program cannot ask, the agent gets a snapfs promote command for the person.

Commands that the agent started in the background run on after the server has ended;
snapfs ls lists their sandboxes. docs/agents.md has a section for each agent.`,
		Example: `  claude mcp add snapfs -- snapfs mcp --memory 4G --time 10m
  codex mcp add snapfs -- snapfs mcp --net allow:packages.example.com
  snapfs mcp --remove-after 24h`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := local.CheckOutside(); err != nil {
				return err
			}
			rules, err := a.agentRules(cmd.Context(), &flags)
			if err != nil {
				return err
			}
			text, err := exactjson.Encode(rules)
			if err != nil {
				return err
			}
			program, err := run.Beside("snapfs-serve", a.ui.notice)
			if err != nil {
				return errs.With("serving", "", err)
			}
			// In place of this process, so that a signal to it, and its death, are those of the server.
			return run.Replace(program[0], "mcp", string(text))
		},
	}
	flags.add(cmd)
	flags.addProve(cmd)
	return cmd
}

// agentRules returns the limits within which `snapfs mcp` acts for an agent, from the flags of the person.
func (a *app) agentRules(ctx context.Context, flags *requestFlags) (serve.Rules, error) {
	req, _, err := flags.request(ctx, a)
	if err != nil {
		return serve.Rules{}, err
	}
	state, err := a.openState()
	if err == nil {
		state, err = absolute(state)
	}
	if err != nil {
		return serve.Rules{}, err
	}
	program, err := os.Executable()
	if err != nil {
		return serve.Rules{}, errs.With("serving", "", err)
	}
	workspace, err := workspaceAt(req.Workspace)
	if err != nil {
		return serve.Rules{}, err
	}
	usual, err := usualState()
	return serve.Rules{
		State: state, Program: program, Usual: err == nil && usual == state, Workspace: workspace, Backend: req.Backend, Frozen: req.Frozen,
		Policy: req.Policy, Queue: req.Admission.Queue, IfRoom: req.Admission.IfRoom,
	}, nil
}

// usualState returns the state directory that snapfs uses in a person's shell without --state.
func usualState() (string, error) {
	dir := os.Getenv("SNAPFS_HOME")
	if dir == "" {
		return engine.StateDir()
	}
	return "", nil // this program's variable may not be in the person's shell
}
