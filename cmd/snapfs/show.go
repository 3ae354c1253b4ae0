package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine"
)

func newShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show sandbox",
		Short:             "show all that is known of a sandbox",
		Example:           "  snapfs show fix\n  snapfs show fix --json",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			info, err := e.Show(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.ui.result(info, func(w io.Writer) error { return printSandbox(w, info) })
		},
	}
}

func printSandbox(w io.Writer, i engine.Info) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, tame(value))
		}
	}
	line("name", i.Name)
	line("state", stateOf(i))
	line("workspace", i.Workspace)
	line("created", i.Created.Format(time.RFC3339)+", "+age(time.Since(i.Created))+" ago")
	line("forked from", i.Origin)
	line("size", sizeOf(i))
	line("base", i.Base)
	if i.Drift.Known {
		both := ""
		if i.Drift.Both > 0 {
			both = fmt.Sprintf(", %d of them changed in the sandbox too", i.Drift.Both)
		}
		line("drift", driftOf(i)+" of the workspace since "+i.Drift.Since.Format(time.RFC3339)+both)
	} else {
		line("drift", "unknown")
	}
	line("network", i.Policy.Network)
	line("limits", describeLimits(i.Policy.Limits))
	if i.Hit != nil {
		line("hit", i.Hit.Text+", "+age(time.Since(i.Hit.When))+" ago")
	}
	line("exposed", strings.Join(i.Policy.Expose, " "))
	line("hidden too", strings.Join(i.Policy.Hide, " "))
	line("variables", strings.Join(i.Policy.Env, " "))
	for _, tree := range i.Trees {
		line("tree", fmt.Sprintf("%s by %s, %s (%s)", tree.Path, tree.Driver, frozenOrLive(tree.Frozen), tree.Reason))
	}
	for _, c := range i.Conflicts {
		line("conflict", c.Path+": "+c.Why)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range i.Marks {
		here, from := " ", "the base"
		if m.Name == i.At {
			here = "*"
		}
		if m.Parent != "" {
			from = m.Parent
		}
		fmt.Fprintf(w, "%s %s  from %s, %s ago\n", here, m.Name, from, age(time.Since(m.Taken)))
	}
	return nil
}

func frozenOrLive(frozen bool) string {
	if frozen {
		return "frozen"
	}
	return "live"
}
