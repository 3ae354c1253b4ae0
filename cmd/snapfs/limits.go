package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newLimits(a *app) *cobra.Command {
	var set []string
	cmd := &cobra.Command{
		Use:   "limits sandbox",
		Short: "show or change a sandbox's limits",
		Long: `Shows a sandbox's limits, what enforces each, and the present use. --set changes all
limits named, or none, also for running processes. The limits are those that snapfs run
and snapfs new have as flags, and profiles as lines.

` + limitValues + "\n\n" + limitsText(),
		Example:           "  snapfs limits fix\n  snapfs limits fix --set memory=4G --set pids=none",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			now, err := e.Supervise.SetLimits(ctx, args[0], func(l *engine.Limits) error { return setLimits(l, set) })
			if err != nil {
				return err
			}
			used, err := e.Supervise.UsageOf(ctx, args[0])
			if err != nil {
				return err
			}
			doc := limitsDocument{args[0], now, used}
			return a.ui.result(doc, func(w io.Writer) error { return printLimits(w, doc) })
		}),
	}
	cmd.SetFlagErrorFunc(setInstead)
	cmd.Flags().StringArrayVar(&set, "set", nil, "change a limit (`name=value`, for example memory=4G or memory=none)")
	return cmd
}

// setInstead returns the error for an unknown flag of `snapfs limits`. If the flag is that of a limit, as snapfs
// new has it, a hint has the flag --set in its place.
func setInstead(_ *cobra.Command, err error) error {
	e := &errs.Error{Kind: errUsage, Err: flagError(err)}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		limits := engine.Limits{}
		for _, limit := range limits.Fields() {
			if limit.Name == unknown.GetSpecifiedName() {
				e.Hints = []string{"snapfs limits NAME --set " + limit.Name + "=VALUE"}
			}
		}
	}
	return e
}

// A limitsDocument is the JSON form of `snapfs limits`: the resources that a sandbox may use.
type limitsDocument struct {
	Sandbox string        `json:"sandbox"`
	Limits  engine.Limits `json:"limits"`
	// Usage is the resource usage, or null if nothing runs.
	Usage *supervise.Usage `json:"usage"`
}

func printLimits(w io.Writer, d limitsDocument) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "LIMIT\tVALUE\tHELD BY\tNOTE")
	held := map[string]supervise.HeldLimit{}
	if d.Usage != nil {
		for _, h := range d.Usage.Held {
			held[h.Limit] = h
		}
	}
	for _, one := range d.Limits.Fields() {
		if value := one.Value.String(); value != "" {
			h := held[one.Name]
			switch one.Name {
			case "time", "idle", "ttl", "remove-after", "keep-end":
				h.By = "supervisor"
			case "disk", "inodes":
				h.By = "backend"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", one.Name, value, h.By, tame(h.Note))
		}
	}
	return t.Flush()
}

func newStats(a *app) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "stats [flags] [sandbox]",
		Short: "show resource use of running sandboxes",
		Long: `Shows memory, processor time, processes and disk of one running sandbox, or of all.
"?" is a value that this host does not measure.`,
		Example:           "  snapfs stats\n  snapfs stats fix --follow",
		Args:              atMost("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			return a.stats(ctx, e, args, follow)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print again every second")
	return cmd
}

// A statsRow is the usage of memory, processors and so on of one sandbox, a row of `snapfs stats`.
type statsRow struct {
	Sandbox string `json:"sandbox"`
	supervise.Usage
	// Processors is the number of processors used since the last row of the same sandbox, or
	// null.
	Processors *float64 `json:"processors,omitempty"`
}

func (a *app) stats(ctx context.Context, e *engine.Engine, only []string, follow bool) error {
	before, then := map[string]time.Duration{}, time.Now()
	for {
		rows, failed := statsOf(ctx, e, only)
		if failed != nil && len(rows) == 0 {
			return failed
		}
		took := time.Since(then)
		then = time.Now()
		for i := range rows {
			r := &rows[i]
			if was, ok := before[r.Sandbox]; ok && r.CPUTime != nil {
				share := max(0, (*r.CPUTime-was).Seconds()/took.Seconds())
				r.Processors = &share
			}
			if r.CPUTime != nil {
				before[r.Sandbox] = *r.CPUTime
			}
		}
		err := a.ui.result(rows, func(w io.Writer) error {
			if follow && isTerminal(a.ui.out) {
				fmt.Fprint(w, "\x1b[H\x1b[2J")
			}
			return printStats(w, rows)
		})
		if err = errors.Join(err, failed); err != nil || !follow {
			return err
		}
		select {
		case <-ctx.Done():
			a.status = exitInterrupted
			return nil
		case <-time.After(time.Second):
		}
	}
}

// statsOf returns the resource usage of each sandbox in only, or of all if only is empty. It leaves out sandboxes
// in which nothing runs, and joins the errors of those that it could not read.
func statsOf(ctx context.Context, e *engine.Engine, only []string) ([]statsRow, error) {
	names := only
	if len(names) == 0 {
		var err error
		if names, err = e.Names(); err != nil {
			return nil, err
		}
	}
	rows := []statsRow{}
	var errs []error
	for _, name := range names {
		u, err := e.Supervise.UsageOf(ctx, name)
		if err != nil { // of this one: the others are shown
			errs = append(errs, err)
		}
		if u != nil {
			rows = append(rows, statsRow{Sandbox: name, Usage: *u})
		}
	}
	return rows, errors.Join(errs...)
}

func printStats(w io.Writer, rows []statsRow) error {
	size := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return units.SizeText(*n)
	}
	number := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return units.FormatCount(*n)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tPROCESSORS\tCPU TIME\tMEMORY\tPEAK\tPIDS\tREAD\tWRITTEN\tDISK")
	for _, r := range rows {
		share, spent := "?", "?"
		if r.Processors != nil {
			share = fmt.Sprintf("%.2f", *r.Processors)
		}
		if r.CPUTime != nil {
			spent = r.CPUTime.Round(10 * time.Millisecond).String()
		}
		disk := "no limit"
		if r.DiskLimit != nil {
			disk = size(r.Disk) + " of " + size(r.DiskLimit)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			r.Sandbox, share, spent, size(r.Memory), size(r.MemoryPeak), number(r.PIDs), size(r.Read), size(r.Written), disk)
	}
	return t.Flush()
}

// printLimitHitIn prints which limit of the existing sandbox called name has ended a command in it, and how
// to increase the limit. It prints nothing if hit is nil.
func (a *app) printLimitHitIn(e *engine.Engine, name string, hit *engine.Hit, st engine.Status) {
	if hit == nil {
		return
	}
	profile, _ := e.MadeUnder(name) // gone, where it was removed meanwhile
	a.printLimitHit(hit, st, "", profile)
}

// printLimitHit prints the limit that a command reached, and sets the exit status if the limit ended the
// command. It names the limit as a flag with the prefix dashes, or, if the limit comes from profile, as a
// line of that.
func (a *app) printLimitHit(hit *engine.Hit, st engine.Status, dashes string, profile *engine.ProfileUse) {
	if hit == nil {
		return
	}
	a.limited = true
	given := dashes + hit.Limit + " " + hit.Value
	if profile.Set(hit.Limit, hit.Value) {
		given = hit.Limit + " " + hit.Value + ", of " + pathlist.Printable(profile.Path)
	}
	a.ui.notice(hit.Text + " (" + given + ")")
	switch hit.Limit {
	case "time", "idle", "ttl", "remove-after":
		a.status = exitLimit
	case "memory", "cpu-time":
		if st.ExitCode() != 0 {
			a.status = exitLimit
		}
	default:
		if st.Signal != 0 {
			a.status = exitLimit
		}
	}
}
