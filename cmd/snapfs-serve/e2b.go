package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/e2b"
	"github.com/snapfs/snapfs/serve/files"
)

// newE2B returns the handler of the protocol of E2B, a hosted service for sandboxes, by which that service's
// clients use snapfs instead. listen is the server's address, open opens the engine, and helper reads and
// writes files in sandboxes. The caller closes the handler. ErrDenied: without a key file, listen must be a
// loopback address.
func newE2B(c *serve.E2BConfig, listen string, open func(context.Context) (*engine.Engine, error), helper *files.Helper) (*e2b.Server, error) {
	const op = "serving E2B"
	o := e2b.Options{
		Rules: c.Rules, Open: open, Files: helper, Hosts: c.Hosts, Templates: c.Templates, MaxTimeout: c.MaxTimeout, Notice: notice,
	}
	if c.KeyFile != "" {
		data, err := os.ReadFile(c.KeyFile)
		key := strings.TrimSpace(string(data))
		if err == nil && key == "" {
			err = errors.New("the file is empty")
		}
		if err != nil {
			return nil, errs.With(op, c.KeyFile, err)
		}
		o.Key = e2b.SameKey(key)
	} else if at, err := net.ResolveTCPAddr("tcp", listen); err != nil || at.IP == nil || !at.IP.IsLoopback() {
		return nil, errs.New(op, "", errs.ErrDenied, "without a key it is served on loopback only", "snapfs serve --e2b --e2b-key FILE --listen "+errs.Quoted(listen))
	}
	return e2b.New(o), nil
}

// printE2B prints the environment variables with which clients of E2B find a server at address. secure is set
// if it uses TLS.
func printE2B(address string, secure bool) {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	address = scheme + address
	fmt.Fprintf(os.Stdout, "E2B_API_URL=%s E2B_SANDBOX_URL=%s\n", address, address)
}
