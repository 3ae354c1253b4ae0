package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network/budget"
)

// A budgetDocument is the JSON form of the commands below `snapfs budget`: what a sandbox may use of
// requests, bytes and model tokens, and has used.
type budgetDocument struct {
	Sandbox string `json:"sandbox"`
	budget.State
}

func newBudget(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "budget",
		Short: "show and raise what a sandbox's requests may use",
		Long: `The budget of a sandbox is that of its profile ("snapfs help profile"): requests, bytes
sent, tokens of models, and the money that these cost. The network proxy counts, and answers
429 to a request that does not fit. A named sandbox is paused then: nothing in it runs until
the limit is raised. A sandbox and its forks count together, each against its own limits. A
sandbox that snapfs send carries to another machine counts on there.`,
		Example: "  snapfs budget show fix\n  snapfs budget raise fix tokens +200000",
	}
	return group(cmd, newBudgetShow(a), newBudgetRaise(a))
}

func newBudgetShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show sandbox",
		Short:             "show a sandbox's budget and what is used of it",
		Example:           "  snapfs budget show fix",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(_ context.Context, e *engine.Engine, args []string) error {
			return a.showBudget(e, args[0])
		}),
	}
}

func newBudgetRaise(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "raise sandbox limit amount",
		Short: "raise a limit of a sandbox's budget, also while it runs",
		Long: `Raises one limit of a sandbox's budget: requests, bytes-sent, tokens, input-tokens,
output-tokens or money. With a plus the amount is added to the limit; otherwise it is the
new limit. The next request counts with it, and a sandbox that was paused because its budget
was spent resumes. A limit beyond that of the site's policy is refused.`,
		Example:           "  snapfs budget raise fix tokens +200000\n  snapfs budget raise fix bytes-sent 10M",
		Args:              exactly("sandbox", "limit", "amount"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			resumed, err := e.Supervise.RaiseBudget(ctx, args[0], args[1], func(limits *budget.Count) error {
				if err := raiseLimit(limits, args[1], args[2]); err != nil {
					return usageError(err)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if resumed {
				a.ui.notice("resumed " + args[0])
			}
			return a.showBudget(e, args[0])
		}),
	}
}

// raiseLimit sets the limit called what in a budget to amount, or adds it if amount begins with "+". A lower
// amount, and a limit that is not set, are errors.
func raiseLimit(limits *budget.Count, what, amount string) error {
	number, added := strings.CutPrefix(amount, "+")
	n, err := budget.ParseAmount(what, number)
	if err != nil {
		return err
	}
	var names []string
	for _, f := range limits.Fields() {
		names = append(names, f.Name)
		if f.Name != what {
			continue
		}
		switch {
		case *f.Value == 0:
			return fmt.Errorf("the budget does not limit %s", what)
		case added:
			n += *f.Value
		case n < *f.Value:
			return fmt.Errorf("the limit of %s is %s already", what, budget.FormatAmount(what, *f.Value))
		}
		*f.Value = n
		return nil
	}
	return fmt.Errorf("no limit %q: one of %s", what, strings.Join(names, ", "))
}

// showBudget prints the budget of the sandbox called name. It returns ErrNotFound if the sandbox has none.
func (a *app) showBudget(e *engine.Engine, name string) error {
	rec, err := e.Catalog().Get(name)
	if err != nil {
		return err
	}
	dir := e.Catalog().Path(rec.Name)
	if err := egress.RequireBudget(rec, dir); err != nil {
		return err
	}
	s, err := budget.Read(dir)
	if err != nil {
		return errs.With("reading the budget of", name, err)
	}
	return a.ui.result(budgetDocument{name, s}, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		used, reserved := s.Used.Fields(), s.Reserved.Fields()
		for i, f := range s.Limits.Fields() {
			limit := "no limit"
			if *f.Value > 0 {
				limit = "of " + budget.FormatAmount(f.Name, *f.Value)
			}
			if *f.Value == 0 && *used[i].Value == 0 {
				continue
			}
			fmt.Fprintf(t, "%s\t%s used\t%s reserved\t%s\n", f.Name, budget.FormatAmount(f.Name, *used[i].Value), budget.FormatAmount(f.Name, *reserved[i].Value), limit)
		}
		for _, model := range slices.Sorted(maps.Keys(s.Models)) {
			c := s.Models[model]
			fmt.Fprintf(t, "%s\t%d requests\t%d input tokens, %d of them cached\t%d output tokens", report.Printable(model), c.Requests, c.Input, c.Cached, c.Output)
			if s.Limits.Money > 0 || c.Money > 0 {
				fmt.Fprintf(t, "\tcost %s", budget.FormatAmount("money", c.Money))
			}
			fmt.Fprintln(t)
		}
		if s.Shared {
			fmt.Fprintln(t, "used and reserved are the sums of this sandbox and of those that share its budget: the one it was forked from, and forks")
		}
		if len(s.Elsewhere) > 0 {
			fmt.Fprintln(t, "used includes what the sandbox used on other machines, as received from there")
		}
		if s.Estimated > 0 {
			fmt.Fprintf(t, "%d responses reported no usage: their worst case counts\n", s.Estimated)
		}
		return t.Flush()
	})
}
