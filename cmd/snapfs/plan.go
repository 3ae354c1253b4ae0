package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/spf13/cobra"
)

// selectFlags hold the flags of `snapfs plan` and `snapfs promote` that select the changes to promote, and
// the target.
type selectFlags struct {
	o           reconcile.PlanOptions
	git         gitFlags
	only, allow []string
}

func (c *selectFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&c.only, "only", nil, "limit to changes at or below this `path` or pattern")
	cmd.Flags().StringVar(&c.o.Target, "target", "", "promote into this `directory` (default the workspace)")
	c.addAllow(cmd)
}

// addAllow adds the flags that approve changes which are otherwise not promoted, such as --allow.
func (c *selectFlags) addAllow(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&c.allow, "allow", nil, "approve changes at or below this `path` or pattern")
	f.BoolVar(&c.o.Allow.SetID, "allow-setid", false, "approve set-user-id and set-group-id bits")
	f.BoolVar(&c.o.Allow.Devices, "allow-devices", false, "approve device nodes")
	f.BoolVar(&c.o.Allow.Capabilities, "allow-capabilities", false, "approve file capabilities")
	f.BoolVar(&c.o.Allow.Private, "allow-private", false, "approve content of files labelled private (snapfs help profile)")
	c.git.add(cmd)
}

// options returns the options for planning a promotion from the sandbox called name, as the flags select.
func (c *selectFlags) options(e *engine.Engine, name string) (o reconcile.PlanOptions, err error) {
	o = c.o
	o.Git = c.git.Options
	if err := c.git.check(); err != nil {
		return o, err
	}
	if o.Only, err = patternsIn(e, name, c.only); err != nil {
		return o, err
	}
	if o.Allow.Paths, err = patternsIn(e, name, c.allow); err != nil {
		return o, err
	}
	if o.Target != "" {
		o.Target, err = realDirectory(o.Target)
	}
	return o, err
}

// patternsIn makes the patterns of flags absolute, as inSandbox does with paths. A pattern without a slash
// stays as it is and matches at any depth.
func patternsIn(e *engine.Engine, name string, patterns []string) ([]string, error) {
	patterns = slices.Clone(patterns)
	for i, p := range patterns {
		if !strings.Contains(p, "/") && strings.ContainsAny(p, "*?[") {
			patterns[i] = "**/" + p
		}
	}
	return inSandbox(e, name, patterns)
}

func newPlan(a *app) *cobra.Command {
	var flags selectFlags
	cmd := &cobra.Command{
		Use:   "plan [flags] sandbox",
		Short: "show the steps of a promotion",
		Long: `Merges a sandbox's changes with the real tree's changes since, and shows the steps of
the promotion, its conflicts, and the changes that need approval by name. Nothing is
changed.

A terminal gets the first 200 lines of each kind. In a list of more than 32 MB, paths that
lie deeper than 64 directories share a line. A line says what is left out; --json has all.

The fingerprint in the last line identifies every step with its precondition and
result: "snapfs promote --plan" with it promotes exactly this plan.`,
		Example: `  snapfs plan fix
  snapfs plan fix --only src --only '*.md'
  snapfs promote fix --plan 5c0ffee15a11`,
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			o, err := flags.options(e, args[0])
			if err != nil {
				return err
			}
			plan, err := e.Reconcile.PlanOf(ctx, args[0], o)
			if err != nil {
				return err
			}
			return a.ui.result(planDocument{plan, plan.Count()}, func(w io.Writer) error {
				most := 0
				if isTerminal(a.ui.out) {
					most = 4 * screenful
				}
				if err := printPlan(w, plan, most); err != nil {
					return err
				}
				a.ui.unfinished(plan, o)
				return nil
			})
		}),
	}
	flags.add(cmd)
	return cmd
}

// A planDocument is the JSON form of a promotion's plan. Count is the number of steps that the text form
// lists.
type planDocument struct {
	*reconcile.Plan
	Count int `json:"count"`
}

// printPlan prints the steps of a plan, with paths relative to the target, and a summary line. most is how
// many lines of steps, of conflicts, and of changes that need approval are printed, each (0: all).
func printPlan(w io.Writer, p *reconcile.Plan, most int) error {
	if err := printLines(w, planLines(p), most, "snapfs plan … | cat"); err != nil {
		return err
	}
	for _, line := range commitLines(p.Git) {
		fmt.Fprintln(w, line)
	}
	sum := count(p.Count(), "step")
	if n := countCommits(p.Git); n > 0 {
		sum += ", " + count(n, "commit")
	}
	if n := len(p.Conflicts); n > 0 {
		sum += ", " + count(n, "conflict")
	}
	if n := len(p.Labelled); n > 0 {
		sum += ", " + count(n, "refusal")
	}
	if n := len(p.NeedsApproval); n > 0 {
		sum += fmt.Sprintf(", %d need approval", n)
	}
	_, err := fmt.Fprintf(w, "%s on %s, plan %s\n", sum, report.Printable(p.Target), p.Fingerprint)
	return err
}

// relativeTo returns path relative to the directory dir if it lies in dir, otherwise path, for printing.
func relativeTo(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// unfinished prints the changes that a plan does not promote, such as conflicts, and the commands that handle
// them.
func (u *ui) unfinished(p *reconcile.Plan, o reconcile.PlanOptions) {
	elsewhere := p.Elsewhere
	if p.Left != nil {
		elsewhere = 0 // Left names them
	}
	u.printLeftOut(p.Skipped, elsewhere, promoteWords.elsewhere)
	u.printLeft(p.Left)
	switch {
	case len(p.Conflicts)+len(p.Labelled) > 0:
		u.hint(errs.HintsOf(p.Refused(o))...)
	case len(p.Steps) > 0:
		command := p.Approving(o)
		if command == "" {
			command = "snapfs promote " + p.Sandbox
			command += gitArgs(o.Git) + " --plan " + p.Fingerprint[:12]
		}
		u.hint(command)
	}
}

// printLeftOut prints the changes that a plan does not include: skipped sockets, and elsewhere changes
// outside the workspace. fate is the text about what happens to the latter.
func (u *ui) printLeftOut(skipped []string, elsewhere int, fate string) {
	for _, path := range skipped {
		u.notice("not applied, as only its server can create it: " + path)
	}
	if elsewhere > 0 {
		u.notice(count(elsewhere, "change") + " elsewhere " + fate)
	}
}
