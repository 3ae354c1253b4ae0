package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/readiness"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newReady(a *app) *cobra.Command {
	var req requestFlags
	maxAge := readiness.MaxAge
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "report whether this host is ready for a profile",
		Long: `Reports whether "snapfs doctor --prove --evidence FILE", with the same profile, workspace
and flags, succeeded on this host and still applies. It starts no sandbox, so a load
balancer can run it every second; only for registries it asks the package manager. The host is not ready if there is no such result; if it is older
than --max-age, or a point of it did not hold; or if the boot, the kernel, the version of
snapfs or the policy has changed since. A hint then gives the command for a new result.

The exit status is 0 if the host is ready, else 7.`,
		Example: "  snapfs ready --profile builds.toml\n  snapfs ready --max-age 1h --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if maxAge <= 0 {
				return usageError(errors.New("--max-age requires a duration above 0"))
			}
			r, _, err := req.request(cmd.Context(), a)
			if err != nil {
				return err
			}
			state, err := a.openState()
			if err != nil {
				return err
			}
			now, err := readiness.ConditionsOf(r, ownVersion())
			if err != nil {
				return err
			}
			answer := readiness.Current(state, now, maxAge)
			word := "ready"
			if !answer.Ready {
				a.status, word = exitCannot, "not ready: "+answer.Reason
			}
			return a.ui.result(answer, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, word+": "+pathlist.Printable(answer.Why))
				if !answer.Ready {
					a.ui.hint(proveHint(r, cmd.Flags()))
				}
				return err
			})
		},
	}
	req.add(cmd)
	cmd.Flags().Var((*durationValue)(&maxAge), "max-age", "accept a result up to this `age`")
	return cmd
}

// proveHint returns, for a hint, the command that tests this host again for a sandbox such as r describes,
// with the flags that were given. `snapfs ready` reports its result until that is too old.
func proveHint(r hostfs.Request, given *pflag.FlagSet) string {
	hint := "snapfs doctor --prove --evidence ready.evidence -C " + errs.Quoted(r.Workspace)
	if use := r.Policy.Profile; use != nil && !use.Found {
		hint += " --profile " + errs.Quoted(use.Path)
	}
	given.Visit(func(f *pflag.Flag) {
		if slices.Contains([]string{"max-age", "json", "workspace", "profile"}, f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			hint += " --" + f.Name + "=" + errs.Quoted(v)
		}
	})
	return hint
}

// checklist tests whether this host is ready for sandboxes such as req describes, writes the signed result to
// a file, and prints whether each tested point holds.
func (a *app) checklist(ctx context.Context, req hostfs.Request, file string) error {
	e, err := a.engine(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	now, err := readiness.ConditionsOf(req, ownVersion())
	if err != nil {
		return err
	}
	m := readiness.Measurement{Engine: e, Request: req, Program: self, Conditions: now, Each: func(r prove.Report) {
		if !a.ui.json {
			a.probed(r)
		}
	}}
	result, text, err := m.Run(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return errs.With("writing the evidence", file, err)
	}
	if !result.Ready() {
		a.status = exitCannot
	}
	return a.ui.result(result, func(w io.Writer) error {
		for i, p := range result.Points {
			if _, err := fmt.Fprintf(w, "%d. %-10s %-9s %s\n", i+1, p.Name, p.Result, pathlist.Printable(p.Why)); err != nil {
				return err
			}
		}
		a.ui.notice("wrote " + pathlist.Printable(file) + ": root " + result.Root)
		return nil
	})
}
