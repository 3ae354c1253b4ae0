package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// requestFlags are the flags of the commands that make a sandbox.
type requestFlags struct {
	name, workspace, backend, profile string
	frozen                            bool
	policy                            catalog.Policy
	admissionFlags
	// given are all flags of the command.
	given *pflag.FlagSet
}

func (r *requestFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	r.given = f
	f.StringVarP(&r.workspace, "workspace", "C", "", "the `directory` it is about (default the git work tree around this one, or this one)")
	f.StringVar(&r.backend, "backend", "", "the `backend` that holds the workspace (default $SNAPFS_BACKEND, or the best that works)")
	f.BoolVar(&r.frozen, "frozen", false, "insist on a base that later edits of the real files cannot change")
	f.StringVar(&r.policy.Network, "net", "none", "the `network`: none, host, or allow: with what may be reached (see snapfs help net)")
	f.StringArrayVar(&r.policy.Expose, "expose", nil, "show this `path` although it is a secret")
	f.StringArrayVar(&r.policy.Hide, "hide", nil, "hide this `path` too")
	f.StringArrayVar(&r.policy.Env, "env", nil, "pass this `variable` although it looks like a secret")
	addLimits(f, &r.policy.Limits)
	f.StringVar(&r.profile, "profile", "", "the `file` that says what the flags do not, or none (default what tightens of the snapfs.toml in the workspace)")
	r.admissionFlags.add(f)
	f.BoolVar(&r.policy.BestEffort, "best-effort", false, "run with less isolation where this host cannot give all, and say so")
	cmd.RegisterFlagCompletionFunc("backend", completeBackend)                                                 //nolint:errcheck // the flag is there
	cmd.RegisterFlagCompletionFunc("net", cobra.FixedCompletions([]string{"none", "host", "allow:"}, noFiles)) //nolint:errcheck // the flag is there
}

// addProve is for the commands whose sandbox is to be used.
func (r *requestFlags) addProve(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.policy.Prove, "prove", false, "try its walls from inside, each time that it starts, before anything else runs in it")
}

// request makes the engine's request, and the directory to start in.
func (r *requestFlags) request(a *app) (hostfs.Request, string, error) {
	if err := r.noneEmpty(); err != nil {
		return hostfs.Request{}, "", err
	}
	when, err := r.admission(a.ui)
	if err != nil {
		return hostfs.Request{}, "", err
	}
	start, err := absolute(r.workspace)
	if err != nil {
		return hostfs.Request{}, "", err
	}
	workspace := start
	if r.workspace == "" {
		if workspace, err = hostfs.Workspace(start); err != nil {
			return hostfs.Request{}, "", err
		}
	}
	rules, allowed, err := hostfs.NetworkRules(r.policy.Network)
	if err != nil {
		return hostfs.Request{}, "", usageError{err}
	}
	if allowed {
		r.policy.Network = "allow:" + rules.String()
	}
	for _, paths := range [][]string{r.policy.Expose, r.policy.Hide} {
		for i, p := range paths {
			if p == "" {
				return hostfs.Request{}, "", usageError{errors.New("an empty path")}
			}
			if paths[i], err = absolute(p); err != nil {
				return hostfs.Request{}, "", err
			}
		}
	}
	for _, name := range r.policy.Env {
		if name == "" || strings.ContainsAny(name, "= \n\x00") {
			return hostfs.Request{}, "", usageError{fmt.Errorf("--env: %q is no name of a variable: name it, without a value", name)}
		}
	}
	if start, err = filepath.EvalSymlinks(start); err != nil {
		start = workspace // the engine says what is wrong with it
	}
	if !r.given.Changed("backend") {
		r.backend = os.Getenv("SNAPFS_BACKEND")
	}
	req := hostfs.Request{Name: r.name, Workspace: workspace, Backend: r.backend, Frozen: r.frozen, Policy: r.policy, Admission: when}
	if err := r.underProfile(a, &req); err != nil {
		return hostfs.Request{}, "", err
	}
	for _, p := range req.Policy.Hide {
		if real, err := realDirectory(p); err == nil && (within(start, real) || within(workspace, real)) {
			return hostfs.Request{}, "", usageError{fmt.Errorf("%s cannot be hidden: the sandbox is about what it holds", pathlist.Printable(p))}
		}
	}
	return req, start, nil
}

// underProfile puts the request under its profile, and says what came of one that
// nobody has named.
func (r *requestFlags) underProfile(a *app, req *hostfs.Request) error {
	path := r.profile
	if path != "" && path != engine.NoProfile {
		var err error
		if path, err = absolute(path); err != nil {
			return err
		}
	}
	if err := engine.Under(req, path, r.given.Changed); err != nil {
		return err
	}
	if use := req.Policy.Profile; use != nil && use.Found {
		a.ui.notice("found " + pathlist.Printable(use.Path) + ": " + usedOf(use))
		if len(use.Left) > 0 {
			a.ui.hint("snapfs run --profile " + pathlist.Printable(use.Path) + " …   # if you trust it")
		}
	}
	return nil
}

// usedOf is what came of a profile.
func usedOf(use *engine.ProfileUse) string {
	var parts []string
	if len(use.Taken) > 0 {
		parts = append(parts, "taken "+printable(use.Taken, ", "))
	}
	if len(use.Left) > 0 {
		why := "flags say otherwise"
		if use.Found {
			why = "it may only tighten"
		}
		parts = append(parts, "not taken, since "+why+": "+printable(use.Left, ", "))
	}
	if parts == nil {
		return "it says nothing of a sandbox"
	}
	return strings.Join(parts, "; ")
}

// printable joins what anybody may have named, each as it may be shown.
func printable(list []string, between string) string {
	shown := make([]string, len(list))
	for i, one := range list {
		shown[i] = pathlist.Printable(one)
	}
	return strings.Join(shown, between)
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
