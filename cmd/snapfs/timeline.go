package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/workflow/bisect"
	"github.com/snapfs/snapfs/workflow/timeline"
	"github.com/spf13/cobra"
)

func newTimeline(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "timeline sandbox",
		Short: "list a sandbox's snapshots with what each changed",
		Long: `Lists the snapshots of a sandbox, oldest first: when and why each was taken, and what
changed since the one before it. With "snapfs new --snapshot-at exec" snapfs takes
snapshots by itself, before and after each command, where something has changed since
the last one. The other key points are limit, refusal, drift, plan, promotion, refresh and
rollback. The marked state is the one that the files last started from.

"snapfs diff sandbox from..to" compares any two of them, "snapfs rollback sandbox state"
returns to any, and "snapfs bisect" finds the one that broke something.

Only snapshots that snapfs takes by itself are removed by themselves, oldest first: see
--keep-snapshots, --keep-snapshots-for and --keep-snapshots-size of "snapfs new".`,
		Example:           "  snapfs new --snapshot-at exec,promotion fix\n  snapfs timeline fix\n  snapfs diff fix k2..k3 --patch\n  snapfs rollback fix k2",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			t, err := timeline.Of(ctx, e, args[0])
			if err != nil {
				return err
			}
			if err := a.ui.result(t, func(w io.Writer) error { return printTimeline(w, t) }); err != nil {
				return err
			}
			if t.Live && len(t.Entries) > 0 && !a.ui.json {
				a.ui.notice("the base is the real tree as it is now: what was promoted since then shows as nothing")
			}
			return nil
		}),
	}
}

func printTimeline(w io.Writer, t *timeline.Timeline) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, entry := range t.Entries {
		name := "  " + entry.Name
		if entry.Current {
			name = "* " + entry.Name
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, entry.Taken.Local().Format(time.DateTime), short(visible(entry.Text)), changedText(entry.Changed))
	}
	if len(t.Entries) == 0 {
		fmt.Fprintln(table, "no snapshots")
	}
	return table.Flush()
}

// short cuts a text, such as a command line, to 60 characters, so that the rest of a line of `snapfs
// timeline` has space.
func short(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// changedText describes, in one line of `snapfs timeline`, how many paths differ between two states of a
// sandbox, and the first of them.
func changedText(c timeline.Changed) string {
	if c.Unknown != "" {
		return "unknown: " + visible(c.Unknown)
	}
	var counts []string
	for _, one := range []struct {
		n    int
		what string
	}{{c.Added, "added"}, {c.Modified, "modified"}, {c.Deleted, "deleted"}} {
		if one.n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	if counts == nil {
		return "nothing"
	}
	paths := make([]string, len(c.Paths))
	for i, p := range c.Paths {
		paths[i] = pathlist.Printable(p)
	}
	if c.More > 0 {
		paths = append(paths, fmt.Sprintf("and %d more", c.More))
	}
	return strings.Join(counts, ", ") + ": " + strings.Join(paths, ", ")
}

// A bisectDocument is the JSON form of `snapfs bisect`, which finds the first of a sandbox's snapshots in
// which a check fails: its result, with the changes that made that snapshot.
type bisectDocument struct {
	*bisect.Result
	// Text is why the first bad state was taken, and Changed what changed from the state before it.
	Text    string           `json:"text"`
	Changed timeline.Changed `json:"changed"`
}

func newBisect(a *app) *cobra.Command {
	var dir string
	var pass []string
	cmd := &cobra.Command{
		Use:   "bisect [flags] sandbox -- command [argument...]",
		Short: "find the snapshot that broke a check",
		Long: `Finds the first of a sandbox's snapshots in which a check fails, by binary search among
those that led to its present files. The check succeeds, with status 0, in a good state
and fails in a bad one. Status 125 skips a state that cannot be judged, and one above 127
ends the search, as for git bisect run. The base is taken for good and is not checked; the
newest snapshot is checked first and must be bad.

Each check runs in a fork of its state, which is removed after it. The sandbox itself does
not change. What the checks print goes to standard error.`,
		Example:           "  snapfs bisect fix -- go test ./...\n  snapfs bisect fix --json -- sh -c 'grep -q ok result'",
		ValidArgsFunction: a.completeThenFiles,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) == 2 && args[1] == "--" {
				return usageError(errors.New("bisect requires a sandbox and a check"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "--" {
				args = slices.Delete(args, 1, 2)
			}
			return a.bisect(cmd.Context(), args[0], dir, pass, args[1:])
		},
	}
	cmd.Flags().StringVarP(&dir, "dir", "C", "", "start in this `directory` (default the current one if inside the workspace, else the workspace)")
	addVariables(cmd.Flags(), &pass)
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (a *app) bisect(ctx context.Context, name, dir string, pass, check []string) error {
	e, err := a.engine(ctx)
	if err != nil {
		return err
	}
	rec, err := timeline.Settled(ctx, e, name)
	if err != nil {
		return err
	}
	dir, env, err := startIn(e, name, dir, pass)
	if err != nil {
		return err
	}
	s := bisect.Search{Sandbox: name, Check: check, Dir: dir, Env: env, Output: a.ui.err, Before: func(state string, left int) {
		a.ui.notice(fmt.Sprintf("checking %s, %d more in question", state, left))
	}}
	r, err := s.Run(ctx, e, rec)
	if err != nil {
		return err
	}
	m, _ := rec.Snapshot(r.Bad)
	d := bisectDocument{Result: r, Text: timeline.TextOf(m)}
	if d.Changed, err = timeline.Between(ctx, e, name, r.Good, r.Bad); err != nil {
		return err
	}
	return a.ui.result(d, func(w io.Writer) error { return printBisect(w, &d) })
}

func printBisect(w io.Writer, d *bisectDocument) error {
	if len(d.Candidates) > 1 {
		fmt.Fprintf(w, "the first bad state is one of %s: the check skipped the others\n", strings.Join(d.Candidates, ", "))
	} else {
		fmt.Fprintf(w, "%s is the first bad state\n", d.Bad)
	}
	good := d.Good
	if good == "" {
		good = "the base, not checked"
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "taken\t%s\nlast good\t%s\nchanged\t%s\nchecks\t%d\n", visible(d.Text), good, changedText(d.Changed), len(d.Checks))
	fmt.Fprintf(t, "see\tsnapfs diff %s %s..%s --patch\n", d.Sandbox, d.Good, d.Bad)
	return t.Flush()
}
