package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/workflow/pipeline"
	"github.com/spf13/cobra"
)

func newLog(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "list promotions, their results and approvers",
		Long: `Lists promotions and applies, newest first. A promotion through stages shows for each
stage its target, result, duration without waiting for a person, and approver. Others
are listed as long as they can be undone. snapfs keeps the last hundred promotions
through stages, and all unfinished ones.`,
		Example: "  snapfs log\n  snapfs log --json",
		Args:    atMost(),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, _ []string) error {
			entries, err := pipeline.New(e).History()
			if len(entries) == 0 && err == nil {
				a.ui.notice("no apply or promotion can be undone")
			}
			return errors.Join(a.ui.page(entries, func(w io.Writer) error { return printHistory(a.ui, w, entries) }), err)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Bool("promotions", true, "list promotions: there is no other log")
	return cmd
}

func resultColour(h pipeline.HistoryEntry) string {
	switch {
	case h.Interrupted || h.Undone || h.Result == stages.StageWaiting:
		return yellow
	case h.Result == stages.StageDone:
		return green
	case h.Result.Ended():
		return red
	}
	return plain
}

func printHistory(u *ui, w io.Writer, entries []pipeline.HistoryEntry) error {
	if len(entries) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "WHEN\tSANDBOX\tSTAGE\t"+u.paint(plain, "RESULT")+"\tTOOK\tAPPROVED\tPROMOTION\tTARGET")
	for _, h := range entries {
		result, approved := string(h.Result), h.Approved
		if h.Interrupted {
			result = "interrupted, " + result
		}
		if approved != "" && !h.Asked {
			approved = "auto, " + approved
		}
		if h.Undone {
			result += ", undone"
		}
		took := "-"
		if h.Took > 0 {
			took = h.Took.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.When.Local().Format("2006-01-02 15:04:05"), h.Sandbox, cmp.Or(h.Stage, "-"), u.paint(resultColour(h), result), took,
			tame(cmp.Or(approved, "-")), cmp.Or(h.Pipeline, h.Promotion), tame(cmp.Or(h.Target, "-")))
	}
	return t.Flush()
}
