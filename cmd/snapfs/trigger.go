package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/workflow/job"
	"github.com/spf13/cobra"
)

// A triggerDocument is the JSON form of a new trigger, which submits a job at intervals, at changes of a
// file, or by a webhook. It has the webhook's secret, which is shown only once.
type triggerDocument struct {
	*job.Trigger
	Secret string `json:"secret,omitempty"`
}

// addTrigger stores the trigger that the flags in s describe. It will submit the job spec at its conditions,
// such as at intervals.
func (a *app) addTrigger(ctx context.Context, e *engine.Engine, s *submission, spec job.Spec) error {
	t := s.trigger
	t.Spec = spec
	t.Deadline = time.Time{} // of each job, by Within
	made, secret, err := job.New(e).AddTrigger(ctx, t)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("trigger %d", made.Number)
	if secret != "" {
		text += ", secret " + secret
	}
	made.Spec = made.Shown()
	return a.ui.say(triggerDocument{made, secret}, text)
}

func newJobTriggers(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "triggers",
		Short:   "list what submits jobs by itself",
		Long:    "Lists the triggers that \"snapfs job submit\" has stored with --every, --when-changed or --webhook.",
		Example: "  snapfs job triggers",
		Args:    exactly(),
		RunE: a.withEngine(func(_ context.Context, e *engine.Engine, _ []string) error {
			list, err := job.New(e).Triggers()
			for i := range list {
				list[i].Spec = list[i].Shown()
			}
			return errors.Join(a.ui.page(list, func(w io.Writer) error { return printTriggers(w, list) }), err)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func printTriggers(w io.Writer, list []job.Trigger) error {
	if len(list) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TRIGGER\tWHEN\tLAST JOB\tWORKSPACE\tCOMMAND")
	for _, tr := range list {
		when, last := "webhook", "-"
		switch {
		case tr.Every > 0:
			when = "every " + units.FormatDuration(tr.Every) + ", next " + tr.Next.Local().Format(time.DateTime)
		case tr.Changed != "":
			when = "changed " + tame(tr.Changed)
		}
		if tr.Last > 0 {
			last = strconv.Itoa(tr.Last)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", tr.Number, when, last, pathlist.Printable(tr.Workspace), tame(strings.Join(tr.Command, " ")))
	}
	return t.Flush()
}

func newJobUntrigger(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "untrigger trigger...",
		Short:   "remove what submits jobs by itself",
		Long:    "Removes triggers. Jobs that they have submitted stay.",
		Example: "  snapfs job untrigger 1",
		Args:    atLeast("trigger"),
		RunE: a.withEngine(func(_ context.Context, e *engine.Engine, args []string) error {
			numbers, err := jobNumbers(args)
			if err != nil {
				return err
			}
			for _, n := range numbers {
				if err := job.New(e).RemoveTrigger(n, nil); err != nil {
					return err
				}
				if err := a.ui.say(n, fmt.Sprintf("trigger %d removed", n)); err != nil {
					return err
				}
			}
			return nil
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}
