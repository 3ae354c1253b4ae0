package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/spf13/cobra"
)

func newShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show sandbox",
		Short: "show a sandbox in detail",
		Long: `Shows a sandbox in detail. A masked path is a secret or one of --hide: processes in the
sandbox find an empty file or directory there. --expose shows it to them. An .npmrc
without credentials is not masked; snapfs reads it when a sandbox's processes start.`,
		Example:           "  snapfs show fix\n  snapfs show fix --json",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			info, err := e.Show(ctx, args[0])
			if err != nil {
				return err
			}
			return a.ui.result(info, func(w io.Writer) error { return printSandbox(w, info) })
		}),
	}
}

func printSandbox(w io.Writer, i engine.Info) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, visible(value))
		}
	}
	line("name", i.Name)
	line("state", stateOf(i))
	line("workspace", i.Workspace)
	if u := i.Unfinished; u != nil {
		line("unfinished", u.String())
	}
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
		line("drift", driftOf(i)+" (snapfs drift "+i.Name+")")
	}
	line("network", i.Policy.Network)
	printAsk(&i.Policy, line)
	line("limits", describeLimits(i.Policy.Limits))
	if i.Running && i.Paused != nil {
		line("paused", i.Paused.Text+", "+age(time.Since(i.Paused.When))+" ago")
	}
	if i.Ended != nil {
		line("ended", i.Ended.Text+", "+age(time.Since(i.Ended.When))+" ago")
	}
	line("ends", endsOf(i))
	if i.Run != nil && i.Run.Unclaimed {
		line("unclaimed", "kept by run, because nobody had decided (snapfs keep "+i.Name+")")
	}
	if use := i.Policy.Profile; use != nil {
		line("profile", pathlist.Printable(use.Path)+": "+usedOf(use))
	}
	line("tools", toolsOf(i.Policy.Tools))
	line("data", dataOf(i.Policy.Data))
	line("result", printable(i.Policy.Result, " "))
	printSecrets(i.Policy.Secrets, line)
	line("site", tightenedOf(i.Policy.Site))
	if i.LimitHit != nil {
		line("hit", i.LimitHit.Text+", "+age(time.Since(i.LimitHit.When))+" ago")
	}
	line("walls", wallsOf(i))
	line("exposed", printable(i.Policy.Expose, " "))
	for _, path := range i.Masked {
		line("masked", pathlist.Printable(path))
	}
	if n := i.HiddenLater; n > 0 {
		line("masked", fmt.Sprintf("%d places that do not exist yet (snapfs help hidden)", n))
	}
	line("variables", strings.Join(i.Policy.Env, " "))
	line("withheld", strings.Join(hostfs.Withheld(os.Environ(), i.Policy.Env), " "))
	for _, tree := range i.Trees {
		line("tree", fmt.Sprintf("%s by %s, %s (%s)", tree.Path, tree.Driver, frozenOrLive(tree.Frozen), tree.Reason))
	}
	for _, c := range i.Conflicts {
		line("conflict", c.Path+": "+c.Why)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range i.Snapshots {
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

// wallsOf returns a text about the last self-test of a sandbox's isolation: when it ran and which protections
// held. It returns "" if none has run and none is set to run.
func wallsOf(i engine.Info) string {
	p := i.Proof
	switch {
	case p == nil && i.Policy.Prove:
		return "tested at each start"
	case p == nil:
		return ""
	}
	when := ", tested " + age(time.Since(p.When)) + " ago in " + p.Took.Round(time.Millisecond).String()
	if len(p.Crossed) == 0 {
		return fmt.Sprintf("all %d held%s", len(p.Held), when)
	}
	var names []string
	for _, w := range p.Crossed {
		names = append(names, w.Name)
	}
	return fmt.Sprintf("%d held, NOT %s%s", len(p.Held), strings.Join(names, ", "), when)
}

func frozenOrLive(frozen bool) string {
	if frozen {
		return "frozen"
	}
	return "live"
}

// endsOf returns a text about when the time limits of a sandbox will pause, stop or remove it, or "".
func endsOf(i engine.Info) string {
	var list []string
	for _, one := range []struct {
		what string
		when time.Time
	}{{"paused", i.PausedAt}, {"removed", i.RemovedAt}} {
		if !one.when.IsZero() {
			list = append(list, one.what+" at "+one.when.Format(time.RFC3339))
		}
	}
	return strings.Join(list, ", ")
}
