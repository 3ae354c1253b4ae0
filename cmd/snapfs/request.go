package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
)

// requestFlags are the flags of the commands that make a sandbox.
type requestFlags struct {
	name, workspace, backend string
	frozen                   bool
	policy                   catalog.Policy
	// given are all flags of the command.
	given *pflag.FlagSet
}

func (r *requestFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	r.given = f
	f.StringVarP(&r.workspace, "workspace", "C", "", "the `directory` it is about (default the git work tree around this one, or this one)")
	f.StringVar(&r.backend, "backend", "", "the `backend` that holds the workspace (default the best that works)")
	f.BoolVar(&r.frozen, "frozen", false, "insist on a base that later edits of the real files cannot change")
	f.StringVar(&r.policy.Network, "net", "none", "the `network`: none, host, or allow: with what may be reached (see snapfs help net)")
	f.StringArrayVar(&r.policy.Expose, "expose", nil, "show this `path` although it is a secret")
	f.StringArrayVar(&r.policy.Hide, "hide", nil, "hide this `path` too")
	f.StringArrayVar(&r.policy.Env, "env", nil, "pass this `variable` although it looks like a secret")
	addLimits(f, &r.policy.Limits)
	f.BoolVar(&r.policy.BestEffort, "best-effort", false, "run with less isolation where this host cannot give all, and say so")
	cmd.RegisterFlagCompletionFunc("backend", completeBackend)                                                 //nolint:errcheck // the flag is there
	cmd.RegisterFlagCompletionFunc("net", cobra.FixedCompletions([]string{"none", "host", "allow:"}, noFiles)) //nolint:errcheck // the flag is there
}

// request makes the engine's request, and the directory to start in.
func (r *requestFlags) request() (engine.Request, string, error) {
	if err := r.noneEmpty(); err != nil {
		return engine.Request{}, "", err
	}
	start, err := absolute(r.workspace)
	if err != nil {
		return engine.Request{}, "", err
	}
	workspace := start
	if r.workspace == "" {
		if workspace, err = engine.Workspace(start); err != nil {
			return engine.Request{}, "", err
		}
	}
	rules, allowed, err := engine.NetworkRules(r.policy.Network)
	if err != nil {
		return engine.Request{}, "", usageError{err}
	}
	if allowed {
		r.policy.Network = "allow:" + rules.String()
	}
	for _, paths := range [][]string{r.policy.Expose, r.policy.Hide} {
		for i, p := range paths {
			if p == "" {
				return engine.Request{}, "", usageError{errors.New("an empty path")}
			}
			if paths[i], err = absolute(p); err != nil {
				return engine.Request{}, "", err
			}
		}
	}
	if start, err = filepath.EvalSymlinks(start); err != nil {
		start = workspace // the engine says what is wrong with it
	}
	for _, p := range r.policy.Hide {
		if real, err := realDirectory(p); err == nil && (within(start, real) || within(workspace, real)) {
			return engine.Request{}, "", usageError{fmt.Errorf("%s cannot be hidden: the sandbox is about what it holds", p)}
		}
	}
	return engine.Request{Name: r.name, Workspace: workspace, Backend: r.backend, Frozen: r.frozen, Policy: r.policy}, start, nil
}

// noneEmpty refuses flags with an empty value: in a script that is a variable
// that was never set, and what is meant without the flag is not what was meant
// with it.
func (r *requestFlags) noneEmpty() (err error) {
	r.given.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = usageError{fmt.Errorf("--%s is empty", f.Name)}
		}
	})
	return err
}
