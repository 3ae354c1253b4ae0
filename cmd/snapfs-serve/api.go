package main

import (
	"context"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/serve/api"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/local"
)

// An apiRequest is what `snapfs serve` passes.
type apiRequest struct {
	State     string    `json:"state"`
	Program   string    `json:"program"`
	Workspace string    `json:"workspace"`
	Backend   string    `json:"backend,omitempty"`
	Where     api.Where `json:"where"`
}

// serveAPI serves the HTTP API until ctx ends.
func serveAPI(ctx context.Context, q apiRequest) error {
	notice := func(text string) { fmt.Fprintln(os.Stderr, "snapfs:", text) }
	open := func(ctx context.Context) (*engine.Engine, error) {
		return local.Open(ctx, local.Options{State: q.State, Program: q.Program, Notice: notice})
	}
	if _, err := open(ctx); err != nil {
		return err // at once, rather than at the first request
	}
	a := api.New(api.Options{
		State: q.State, Open: open, Files: files.NewHelper(q.Program, "files"), Workspace: q.Workspace, Backend: q.Backend, Version: version(),
	})
	return a.Serve(ctx, q.Where, func(address string) { notice("serving at " + address) })
}
