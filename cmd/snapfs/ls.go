package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff/report"
)

func newLs(a *app) *cobra.Command {
	var names, measure bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "list sandboxes",
		Long: `Lists the sandboxes with their state, age, size beyond the base and named snapshots,
whether the base is frozen or live (a live base shows later edits of files that the
sandbox has not changed), and the number of files that have changed in the real
workspace since. Those of this workspace come first, and of each workspace the newest.
A size that would take too long to measure is "-", and such drift is "not checked";
--measure takes the time.`,
		Example: "  snapfs ls\n  snapfs ls -q | xargs snapfs rm",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.onlyReads = true
			freeLittle()
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			if names {
				return printNames(a.ui, e)
			}
			here, _ := workspacesHere() // in a deleted directory none comes first
			infos, err := e.List(cmd.Context(), measure)
			infos = arranged(infos, here)
			text := func(w io.Writer) error { return printSandboxes(a.ui, w, infos, true) }
			return errors.Join(a.ui.page(infos, text), err)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&names, "quiet", "q", false, "print names only")
	cmd.Flags().BoolVar(&measure, "measure", false, "measure every size and all drift, however long that takes")
	return cmd
}

func printNames(u *ui, e *engine.Engine) error {
	names, err := e.Names()
	return errors.Join(u.result(names, func(w io.Writer) error {
		for _, n := range names {
			fmt.Fprintln(w, n)
		}
		return nil
	}), err)
}

// arranged sorts sandboxes for a list: by workspace, first those whose workspace is one of here, and the
// newest of each workspace first.
func arranged(infos []engine.Info, here []string) []engine.Info {
	order := make([]*engine.Info, len(infos)) // an Info is large, and a sort moves each many times
	for i := range infos {
		order[i] = &infos[i]
	}
	slices.SortStableFunc(order, func(a, b *engine.Info) int {
		first := func(i *engine.Info) int { return cmp.Or(slices.Index(here, i.Workspace)+1, len(here)+1) }
		return cmp.Or(cmp.Compare(first(a), first(b)), strings.Compare(a.Workspace, b.Workspace), b.Created.Compare(a.Created))
	})
	sorted := make([]engine.Info, len(infos))
	for i, info := range order {
		sorted[i] = *info
	}
	return sorted
}

// printSandboxes prints a row for each sandbox. several is set if the list may have several workspaces; then
// each row has its workspace.
func printSandboxes(u *ui, w io.Writer, infos []engine.Info, several bool) error {
	if len(infos) == 0 {
		return nil
	}
	buffered := bufio.NewWriter(w)
	t := tabwriter.NewWriter(buffered, 0, 8, 2, ' ', 0)
	row := func(workspace string, cells ...string) {
		if several {
			cells = append(cells, workspace)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	paint := u.painter()
	row("WORKSPACE", "NAME", paint(plain, "STATE"), "AGE", "SIZE", "BASE", "DRIFT")
	for _, i := range infos {
		row(report.Printable(i.Workspace), i.Name, paint(stateColour(i), stateOf(i)), age(time.Since(i.Created)), sizeOf(i), i.Base, driftOf(i))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, i := range infos {
		if u := i.Unfinished; u != nil && several {
			fmt.Fprintln(buffered, tame(u.String()))
		}
	}
	return buffered.Flush()
}

func stateOf(i engine.Info) string {
	switch {
	case i.Running && i.Paused != nil:
		return "paused"
	case i.Running:
		return "running"
	case i.Ended != nil:
		return "ended"
	case !i.RemovedAt.IsZero() && time.Now().After(i.RemovedAt):
		return "ending"
	case i.State != "ready":
		return string(i.State)
	}
	return "idle"
}

func stateColour(i engine.Info) string {
	switch stateOf(i) {
	case "running":
		return green
	case "idle":
		return plain
	}
	return yellow
}

func sizeOf(i engine.Info) string {
	switch {
	case !i.Measured:
		return "-"
	case i.Size < 0:
		return "?"
	}
	return i.Size.String()
}

func driftOf(i engine.Info) string {
	switch {
	case !i.Drift.Known:
		return "not checked"
	case i.Drift.Paths == 0:
		return "none"
	}
	return count(i.Drift.Paths, "file")
}

// age formats a duration in its largest unit only, such as "3h", for the column with the age of a sandbox.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
