package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/spf13/cobra"
)

func newEvents(a *app) *cobra.Command {
	var follow bool
	var after int64
	cmd := &cobra.Command{
		Use:   "events [flags] [sandbox]",
		Short: "list what happened: sandboxes, commands, limits, networks, promotions",
		Long: `Lists what happened in this state directory, or to one sandbox, oldest first, each event
with its number. Every snapfs command writes its events before it reports its result,
so no daemon is needed. --follow goes on with those that come, until it is interrupted;
without --after it starts with the next one.

With --json each event is one line: a CloudEvents 1.0 object, whose type and data
docs/events.md lists. Numbers have no gaps. To resume, give --after the last number
that was read. snapfs stores the newest 28 to 32 MiB; an event of type
snapfs.events.lost stands for older ones that were asked for.`,
		Example: `  snapfs events
  snapfs events --follow --json
  snapfs events --after 120 fix`,
		Args:              atMost("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			if after < 0 && after != -1 {
				return usageError(errors.New("--after needs the number of an event, or 0 for all"))
			}
			show := func(ev events.Event) error {
				if len(args) > 0 && ev.Subject != args[0] && ev.Type != events.EventsLost {
					return nil
				}
				return a.ui.say(ev, eventLine(ev))
			}
			if !follow {
				return events.Read(e.StateDir(), uint64(max(after, 0)), show)
			}
			if after < 0 {
				newest, err := events.Newest(e.StateDir())
				if err != nil {
					return err
				}
				after = int64(newest)
			}
			return events.Follow(ctx, e.StateDir(), uint64(after), show)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	cmd.Flags().Int64Var(&after, "after", -1, "start after the event with this number; 0: with the oldest")
	return cmd
}

// eventLine returns an event of the state directory as a line of text: number, time, sandbox, type, and
// details.
func eventLine(ev events.Event) string {
	kind := strings.TrimPrefix(ev.Type, "snapfs.")
	line := fmt.Sprintf("%6s  %s  %-16s %s", ev.ID, ev.Time.Local().Format("2006-01-02 15:04:05.000"), tame(ev.Subject), kind)
	return strings.TrimRight(line+"  "+eventDetail(ev.Data), " ")
}

// eventDetail returns the details of an event as text, such as a command and its exit status.
func eventDetail(d events.Data) string {
	var words []string
	add := func(set bool, format string, values ...any) {
		if set {
			words = append(words, fmt.Sprintf(format, values...))
		}
	}
	add(d.Workspace != "" && len(d.Backends) > 0, "%s on %s", pathlist.Printable(d.Workspace), strings.Join(d.Backends, ", "))
	add(d.Workspace != "" && len(d.Backends) == 0, "%s", pathlist.Printable(d.Workspace))
	add(d.Origin != "", "from %s", d.Origin)
	add(d.Job > 0, "job %d", d.Job)
	add(d.Name != "", "%s", d.Name)
	add(len(d.Command) > 0, "%s", tame(strings.Join(d.Command, " ")))
	add(d.Status != nil, "status %d after %.3f s", deref(d.Status), d.Seconds)
	add(d.CPUSeconds > 0, "processor %.3f s", d.CPUSeconds)
	add(d.Limit != "", "limit %s", strings.TrimSpace(d.Limit+" "+d.Value))
	add(d.Host != "" && d.Port == 0, "%s", tame(d.Host))
	add(d.Port != 0, "%s:%d", tame(d.Host), d.Port)
	add(len(d.Held) > 0, "%d probes held", len(d.Held))
	add(len(d.Crossed) > 0, "crossed %s", strings.Join(d.Crossed, ", "))
	add(d.Changes > 0, "%d paths", d.Changes)
	add(d.Target != "", "at %s", pathlist.Printable(d.Target))
	add(d.Promotion != "", "as %s", d.Promotion)
	add(d.Name != "" && len(d.Paths) > 0, "%s", printable(d.Paths, ", "))
	add(d.Reason != "", "(%s)", tame(d.Reason))
	add(d.First > 0, "%d to %d are no longer stored", d.First, d.Last)
	return strings.Join(words, ", ")
}

// deref returns the number that n points to, or 0 if n is nil, as in an event that lacks the number.
func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
