package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/network"
	"github.com/spf13/cobra"
)

func newNet(a *app) *cobra.Command {
	var flags netFlags
	cmd := &cobra.Command{
		Use:   "net [flags] sandbox",
		Short: "show a sandbox's network decisions and allow more",
		Long: `Shows the decisions of a sandbox's network proxy: each request, whether it was allowed,
and by which rule or for which reason it was refused; and, per rule, connections and
bytes over the sandbox's life. Of very many decisions snapfs keeps the last. --allow
adds a destination, also for running processes.

In a sandbox that was made with --ask a connection to a destination that no rule allows
waits for your answer, listed here, for a minute or the time of --ask; then it is
refused. --allow lets it through, and later ones; with --once only what waits now.
--allow with --profile adds the rule to that profile, too. --deny refuses what waits,
and further connections there without a question; with --once only what waits now. Nothing loosens the site's policy.

` + network.Grammar,
		Example:           "  snapfs net fix\n  snapfs net fix --allow git.example.org:443\n  snapfs net fix --allow git.example.org:443 --once",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			err := flags.check()
			if err == nil {
				err = a.answer(ctx, e, args[0], flags)
			}
			if err != nil {
				return err
			}
			return a.showNet(e, args[0], flags.refused)
		}),
	}
	cmd.Flags().StringArrayVar(&flags.allow, "allow", nil, "add this `rule` to the allowed destinations")
	cmd.Flags().StringArrayVar(&flags.deny, "deny", nil, "refuse the connections to this `destination` that wait, and later ones without a question")
	cmd.Flags().BoolVar(&flags.once, "once", false, "with --allow or --deny: answer for the connections that wait now, and no others")
	cmd.Flags().StringVar(&flags.profile, "profile", "", "with --allow: add the rule to the profile in this `file`, too")
	cmd.Flags().BoolVar(&flags.refused, "refused", false, "show refused requests only")
	return cmd
}

// A netDocument is the JSON form of `snapfs net`: what a sandbox may reach in the network, and which accesses
// it tried.
type netDocument struct {
	Sandbox string `json:"sandbox"`
	Network string `json:"network"`
	// Asked are the destinations to which connections wait for a person.
	Asked  []network.Question `json:"asked,omitempty"`
	Events []network.Event    `json:"events"`
	// Counters cover the sandbox's whole life; Events may cover only its end.
	Counters network.Counters `json:"counters"`
}

func (a *app) showNet(e *engine.Engine, name string, refused bool) error {
	doc := netDocument{Sandbox: name, Events: []network.Event{}}
	var err error
	if doc.Network, err = e.Supervise.NetworkOf(name); err != nil {
		return err
	}
	if doc.Counters, err = e.Supervise.NetworkCounters(name); err != nil {
		return err
	}
	rec, err := e.Catalog().Get(name)
	if err != nil {
		return err
	}
	asked, now, err := e.Egress.Questions(rec)
	if err != nil {
		return err
	}
	doc.Asked, doc.Network = asked, cmp.Or(now, doc.Network)
	all, err := e.Supervise.NetworkEvents(name)
	if err != nil {
		return err
	}
	for _, ev := range all {
		if !refused || !ev.Allowed && !ev.Asked {
			doc.Events = append(doc.Events, ev)
		}
	}
	return a.ui.result(doc, func(w io.Writer) error { return printNet(w, doc) })
}

func printNet(w io.Writer, d netDocument) error {
	fmt.Fprintln(w, "network "+d.Network)
	printQuestions(w, d.Sandbox, d.Asked)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, ev := range d.Events {
		what, why := "refused", ev.Why
		switch {
		case ev.Kind == network.Edge:
			what = "ended"
		case ev.Ended:
			what, why = "ended", strings.TrimPrefix(fmt.Sprintf("%s, %d bytes in, %d out", ev.Why, ev.BytesIn, ev.BytesOut), ", ")
		case ev.Failed:
			what = "failed"
		case ev.Asked:
			what = "asked"
		case ev.Allowed && ev.Rule == "":
			what = "allowed"
		case ev.Allowed:
			what, why = "allowed", strings.TrimSuffix("by "+ev.Rule+", "+ev.Why, ", ")
			if len(ev.Secrets) > 0 {
				why += ", with " + strings.Join(ev.Secrets, ", ")
			}
		}
		if ev.Kind == network.HTTP {
			why = ev.Method + " " + ev.Path + " " + why
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", ev.Time.Format(time.TimeOnly), what, ev.Kind, tame(place(ev.Name, ev.Addr, ev.Port)), tame(why))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printCounters(w, d.Counters)
}

// printCounters prints how many connections and bytes a sandbox's network had, in total and for each rule.
func printCounters(w io.Writer, c network.Counters) error {
	if c.Queries+c.Opened+c.Refused == 0 {
		return nil
	}
	fmt.Fprintf(w, "%d opened, %d open, %d refused, %d name lookups, %s in, %s out\n",
		c.Opened, c.Open, c.Refused, c.Queries, units.SizeText(c.BytesIn), units.SizeText(c.BytesOut))
	if c.EventsLost > 0 {
		fmt.Fprintf(w, "%d events were dropped: too many at once\n", c.EventsLost)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, rule := range slices.Sorted(maps.Keys(c.Rules)) {
		r := c.Rules[rule]
		fmt.Fprintf(t, "by %s\t%d opened, %d open, %s\n", rule, r.Opened, r.Open, units.SizeText(r.Bytes))
	}
	return t.Flush()
}

// place formats a destination in the network: its name or its address, with the port if it has one.
func place(name string, addr netip.Addr, port uint16) string {
	switch {
	case name == "" && addr.IsValid() && port != 0:
		return netip.AddrPortFrom(addr, port).String()
	case name == "" && addr.IsValid():
		return addr.String()
	case port != 0:
		return name + ":" + strconv.Itoa(int(port))
	}
	return name
}

// printRefused prints a line for each network destination that the proxy refused or failed to reach, with the
// rule that would allow it.
func (a *app) printRefused(list []egress.RefusedAccess) {
	const most = 5
	for i, r := range list {
		if i == most {
			a.ui.notice(fmt.Sprintf("and %d more refused", len(list)-most))
			return
		}
		what := "refused: "
		if r.Failed {
			what = "allowed but not reached: "
		}
		a.ui.notice(what + place(r.Name, r.Addr, r.Port) + ": " + r.Why)
	}
}
