package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/spf13/cobra"
)

func newDrift(a *app) *cobra.Command {
	var exitCode, follow bool
	cmd := &cobra.Command{
		Use:   "drift [flags] sandbox",
		Short: "show what changed in the real tree since a sandbox was made",
		Long: `Shows what changed in the real workspace since the sandbox's base was taken, and which
of these paths the sandbox changed too. Outside the workspace it shows the real tree's
changes at paths that the sandbox changed.

On a frozen base the report is exact. On a live base snapfs compares change times: it
reports a directory whose entries changed, and cannot name deleted files. The result
of "snapfs apply" from this sandbox is not drift until it changes again.

Backends that serve a live base from a process, fusecow and fusecow-overlay, record
while the sandbox runs which files had already changed at their first read. The report
marks these as read here, wherever they are.

--follow prints a report at each change of the real tree until it is interrupted or the
sandbox is removed; with --json, one line each. A process that runs in the sandbox for
more than a second can read the same report in /run/snapfs/drift.

diff, exec, snapshot and rollback print a line about drift if they find some within
5 ms ($SNAPFS_DRIFT_TIME, such as 1s), and else that they have not checked.`,
		Example: `  snapfs drift fix
  snapfs drift fix --follow
  snapfs drift fix --exit-code || echo "the real tree has moved on"`,
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow && exitCode {
				return usageError(errors.New("--follow and --exit-code exclude one another"))
			}
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			workspace, err := e.WorkspaceOf(args[0])
			if err != nil {
				return err
			}
			if follow {
				return a.followDrift(cmd.Context(), e, args[0], workspace)
			}
			r, err := e.Compare.DriftOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.ui.result(r, func(w io.Writer) error { return printPaths(w, r.Paths, workspace, driftSentence(r)) }); err != nil {
				return err
			}
			if exitCode && len(r.Paths) > 0 {
				return errSilent
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep watching and print each new report")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with status 1 if anything changed")
	return cmd
}

// followDrift prints a report of the drift of the sandbox called name at each change of the real tree, until
// ctx ends. A report lists only paths that the last one did not have, those in workspace relative to it.
func (a *app) followDrift(ctx context.Context, e *engine.Engine, name, workspace string) error {
	known := map[compare.DriftPath]bool{}
	err := e.Supervise.FollowDrift(ctx, name, func(r compare.DriftReport) error {
		return a.ui.result(r, func(w io.Writer) error {
			var news []compare.DriftPath
			now := map[compare.DriftPath]bool{}
			for _, p := range r.Paths {
				if now[p] = true; !known[p] {
					news = append(news, p)
				}
			}
			known = now
			return printPaths(w, news, workspace, driftSentence(r))
		})
	})
	if ctx.Err() != nil { // interrupted: the regular end
		a.status, err = exitInterrupted, nil
	}
	return err
}

// printPaths prints the paths that have drifted, those of the workspace relative to it, and then sentence as
// the last line.
func printPaths(w io.Writer, paths []compare.DriftPath, workspace, sentence string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range paths {
		too := ""
		switch {
		case p.Both:
			too = "here too"
		case p.Read:
			too = "read here"
		}
		path := p.Path
		if rel, err := filepath.Rel(workspace, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", p.Kind, too, report.Printable(path))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, sentence)
	return err
}

// visible escapes control characters in a path, so that the path fits in one cell of one line of a table.
func visible(path string) string {
	return strings.NewReplacer("\n", "^J", "\t", "^I").Replace(tame(path))
}

// driftSentence returns, as one line of text, how many real files have changed since a sandbox was made.
func driftSentence(r compare.DriftReport) string {
	if r.Since.IsZero() {
		return "the sandbox is being made: drift is not known yet"
	}
	if len(r.Paths) == 0 {
		return "nothing has changed since " + r.Since.Format(time.RFC3339)
	}
	s := span(time.Since(r.Since)) + " and " + count(r.Files, "file") + " behind"
	switch {
	case r.Both == 1 && r.Files == 1:
		s += "; changed in the sandbox too"
	case r.Both > 0:
		s += fmt.Sprintf("; %d of them changed in the sandbox too", r.Both)
	}
	return s
}

// span formats a duration in words for a message, in one unit only and rounded down, such as "3 hours". The
// units are seconds, minutes, hours up to two days, and days.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return count(int(d.Seconds()), "second")
	case d < time.Hour:
		return count(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return count(int(d.Hours()), "hour")
	}
	return count(int(d.Hours()/24), "day")
}

// How long a command may take, after its work, to find drift for a notice. lookTime is for searching the real
// tree, whatever its size, unless SNAPFS_DRIFT_TIME says another time. compareTime is for comparing the found
// paths with the sandbox, which takes longer if a process serves the sandbox's files.
const (
	lookTime    = 5 * time.Millisecond
	compareTime = 150 * time.Millisecond
)

// durationFrom returns the duration in the environment variable env, or standard if it is unset or empty. Any
// other text, and a duration that is not above 0, is a usage error.
func durationFrom(env string, standard time.Duration) (time.Duration, error) {
	text := os.Getenv(env)
	if text == "" {
		return standard, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, usageError(fmt.Errorf("the environment variable %s is %q, which is no duration above 0 such as 30s", env, text))
	}
	return d, nil
}

// behind prints a notice about how many files of the real tree have changed since the sandbox called name was
// made, or that it could not find out: the time did not suffice, or SNAPFS_DRIFT_TIME is wrong. Commands call it
// last. It prints nothing with --json or without drift.
func (a *app) behind(ctx context.Context, e *engine.Engine, name string) {
	if a.ui.json {
		return
	}
	look, err := durationFrom("SNAPFS_DRIFT_TIME", lookTime)
	if err != nil { // the command itself has succeeded
		a.ui.notice("drift of " + name + " not checked: " + err.Error())
		return
	}
	r, err := e.Compare.DriftWithin(ctx, name, look, look+compareTime)
	switch {
	case err != nil: // the command itself has succeeded
	case !r.Known:
		a.ui.notice("drift of " + name + " not checked (snapfs drift " + name + ")")
	case len(r.Paths) > 0:
		a.ui.notice(name + " is " + driftSentence(r) + " (snapfs drift " + name + ")")
	}
}
