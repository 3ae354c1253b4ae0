package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/api"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/local"
	"github.com/snapfs/snapfs/serve/mcpserver"
	"github.com/snapfs/snapfs/serve/page"
	"github.com/snapfs/snapfs/serve/telemetry"
	"github.com/snapfs/snapfs/serve/token"
)

// An apiRequest is the configuration that `snapfs serve` passes to this program, as JSON.
type apiRequest struct {
	State     string    `json:"state"`
	Program   string    `json:"program"`
	Workspace string    `json:"workspace"`
	Backend   string    `json:"backend,omitempty"`
	Where     api.Where `json:"where"`
	// Login are the scopes of the link to the page to print; none for no link.
	Login []token.Scope `json:"login,omitempty"`
	// MCP and E2B are nil unless they are served too.
	MCP *serve.Rules     `json:"mcp,omitempty"`
	E2B *serve.E2BConfig `json:"e2b,omitempty"`
}

func notice(text string) { fmt.Fprintln(os.Stderr, "snapfs:", text) }

// serveAPI serves the HTTP API, and the other protocols that q asks for, until ctx ends.
func serveAPI(ctx context.Context, q apiRequest) error {
	shared := local.NewServer(q.State, q.Program)
	defer shared.Close()
	open := func(ctx context.Context) (*engine.Engine, error) {
		return local.Open(ctx, local.Options{State: q.State, Program: q.Program, Notice: notice, Server: shared})
	}
	if _, err := open(ctx); err != nil {
		return err // at once, rather than at the first request
	}
	helper := files.NewHelper(q.Program, "files")
	browser := page.New(q.State)
	o := api.Options{State: q.State, Open: open, Program: q.Program, Files: helper, Front: browser.Front, Workspace: q.Workspace, Backend: q.Backend, Version: version()}
	ended := func() error { return nil }
	if q.E2B != nil {
		wire, err := newE2B(q.E2B, q.Where.Listen, open, helper)
		if err != nil {
			return err
		}
		o.Others, ended = append(o.Others, wire), wire.Close
	}
	a := api.New(o)
	if q.MCP != nil {
		h, err := mcpserver.Handler(ctx, serve.New(*q.MCP, open), mcpserver.Options{Version: version(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		a.Mount("/mcp", token.Run, func(w http.ResponseWriter, r *http.Request, has func(token.Scope) bool) {
			h.ServeHTTP(w, mcpserver.WithPromote(r, has(token.Promote)))
		})
	}
	defer observe(ctx, q.State, a)()
	err := a.Serve(ctx, q.Where, func(address string) {
		notice("serving at " + address)
		if len(q.Login) > 0 {
			fmt.Fprintln(os.Stdout, pageURL(address, q.Where)+"#login="+browser.Link(q.Login))
		}
		if q.E2B != nil {
			printE2B(address, q.Where.Cert != "")
		}
	})
	return errors.Join(err, ended())
}

// pageURL returns the URL of the web page of a server that listens at address.
func pageURL(address string, w api.Where) string {
	scheme := "http"
	if w.Cert != "" {
		scheme = "https"
	}
	if _, port, err := net.SplitHostPort(address); err == nil && len(w.Hosts) > 0 {
		address = net.JoinHostPort(w.Hosts[0], port)
	}
	return scheme + "://" + address + "/"
}

// observe counts the events of the state directory for the metrics of a. If the environment names an
// OpenTelemetry collector, it also sends tracing spans about them. Both end with ctx; the caller then calls
// wait.
func observe(ctx context.Context, state string, a *api.API) (wait func()) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	follow := func(of string, do func() error) {
		running.Go(func() {
			if err := do(); err != nil {
				notice("no more " + of + ": " + err.Error())
			}
		})
	}
	m := telemetry.NewMetrics(a.Registry())
	follow("counting of events", func() error { return m.Follow(ctx, state) })
	if telemetry.Wanted() {
		follow("spans are sent", func() error { return telemetry.Trace(ctx, state, version(), a.Registry(), notice) })
	}
	return func() {
		stop()
		running.Wait()
	}
}
