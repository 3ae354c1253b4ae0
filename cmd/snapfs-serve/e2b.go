package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/e2b"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/local"
)

// serveE2B serves E2B's wire until a signal comes.
func serveE2B(ctx context.Context, c serve.E2BConfig) error {
	const op = "serving E2B"
	notice := func(text string) { fmt.Fprintln(os.Stderr, "snapfs:", text) }
	open := func(ctx context.Context) (*engine.Engine, error) {
		return local.Open(ctx, local.Options{State: c.Rules.State, Program: c.Rules.Program, Notice: notice})
	}
	if _, err := open(ctx); err != nil {
		return err // at once, rather than at the first call
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return errs.With(op, "", err)
	}
	defer listener.Close() //nolint:errcheck // nothing is left to do
	o := e2b.Options{
		Rules: c.Rules, Open: open, Files: files.NewHelper(c.Rules.Program, "files"),
		Hosts: c.Hosts, Templates: c.Templates, MaxTimeout: c.MaxTimeout, Notice: notice,
	}
	if c.KeyFile != "" {
		data, err := os.ReadFile(c.KeyFile)
		key := strings.TrimSpace(string(data))
		if err == nil && key == "" {
			err = errors.New("the file is empty")
		}
		if err != nil {
			return errs.With(op, c.KeyFile, err)
		}
		o.Key = e2b.SameKey(key)
	} else if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return errs.New(op, "", errs.ErrDenied, "without a key the server listens on loopback only", "snapfs serve --e2b --listen 127.0.0.1:0")
	}
	handler := e2b.New(o)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	fmt.Fprintf(os.Stdout, "E2B_API_URL=http://%s E2B_SANDBOX_URL=http://%s\n", listener.Addr(), listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	err = errors.Join(err, handler.Close())
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close() // its clients have been cut off by now
	}
	return err
}
