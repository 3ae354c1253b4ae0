package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/network/forward"
	"github.com/spf13/cobra"
)

func newPort(a *app) *cobra.Command {
	var end []string
	cmd := &cobra.Command{
		Use:   "port [flags] sandbox [port[:hostport]]...",
		Short: "forward host ports into a sandbox",
		Long: `Forwards TCP ports of this host's loopback, 127.0.0.1 and ::1, to ports inside a
sandbox, and prints them: hostport, or a free port. Without ports it lists the open
forwards. The sandbox needs no network for it, and two sandboxes can listen on the same
port. The server inside must listen on the sandbox's 127.0.0.1, its ::1, or all
addresses.

A connection that no server inside accepts is reset. Forwards close with the sandbox's
last process. Every user of this host can connect to them; the sandbox's own network
does not change. snapfs net shows the connections.`,
		Example:           "  snapfs port fix 5432\n  snapfs port fix 8080:80 9000\n  snapfs port fix --close 5432",
		Args:              atLeast("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			return a.ports(ctx, e, args[0], args[1:], end)
		}),
	}
	cmd.Flags().StringArrayVar(&end, "close", nil, "close this `port` and reset its connections")
	return cmd
}

// A portsDocument is the JSON form of `snapfs port`, which opens ports of the host that lead into a sandbox:
// the new forwards, or without port arguments all open ones.
type portsDocument struct {
	Sandbox string           `json:"sandbox"`
	Ports   []supervise.Port `json:"ports"`
}

func (a *app) ports(ctx context.Context, e *engine.Engine, name string, open, end []string) error {
	type pair struct{ port, host uint16 }
	var opened, ended []pair
	for _, list := range []struct {
		texts []string
		to    *[]pair
	}{{open, &opened}, {end, &ended}} {
		for _, text := range list.texts {
			port, host, err := forward.Parse(text)
			if err != nil {
				return usageError(err)
			}
			*list.to = append(*list.to, pair{port, host})
		}
	}
	doc := portsDocument{Sandbox: name, Ports: []supervise.Port{}}
	for _, p := range ended {
		if err := e.Supervise.ClosePort(ctx, name, p.port); err != nil {
			return err
		}
	}
	for _, p := range opened {
		one, err := e.Supervise.OpenPort(ctx, name, p.port, p.host)
		if err != nil {
			return err
		}
		doc.Ports = append(doc.Ports, one)
	}
	if len(opened) == 0 && len(ended) == 0 {
		var err error
		if doc.Ports, err = e.Supervise.Ports(ctx, name); err != nil {
			return err
		}
	}
	return a.ui.result(doc, func(w io.Writer) error { return printPorts(w, doc.Ports) })
}

func printPorts(w io.Writer, list []supervise.Port) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range list {
		fmt.Fprintf(t, "%d\t%s\n", p.Port, strings.Join(texts(p.Addrs), " "))
	}
	return t.Flush()
}

func texts(addrs []netip.AddrPort) (list []string) {
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}
