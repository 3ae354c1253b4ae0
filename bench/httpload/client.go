//go:build linux

package httpload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// A Client sends requests to a [Server] over connections that it reuses. It is safe for concurrent use.
type Client struct{ http http.Client }

// Client returns a client of the server that reuses at most conns connections.
func (s *Server) Client(conns int) *Client {
	var d net.Dialer
	return &Client{http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: conns,
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", s.socket) },
	}}}
}

// Close closes the client's connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// New requests from the server to make the sandbox called name, and returns when it exists.
func (c *Client) New(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, "", map[string]any{"name": name}, nil)
}

// Remove requests from the server to remove the sandbox called name, and returns when that is done.
func (c *Client) Remove(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/"+name, nil, nil)
}

// Exec runs the command args in the sandbox called name, waits for its end and returns its standard output.
func (c *Client) Exec(ctx context.Context, name string, args ...string) (string, error) {
	var r struct {
		Exit   int
		Stdout struct{ Text string }
		Stderr struct{ Text string }
	}
	err := c.call(ctx, http.MethodPost, "/"+name+"/exec", map[string]any{"args": args}, &r)
	if err == nil && r.Exit != 0 {
		err = fmt.Errorf("exit status %d: %s", r.Exit, r.Stderr.Text)
	}
	return r.Stdout.Text, err
}

// call sends a request with the HTTP method and the JSON form of body about the path below /v1/sandboxes, and
// decodes the reply into to unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, body, to any) error {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(data)
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://snapfs/v1/sandboxes"+path, sent)
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	r, err := c.http.Do(q)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return err
	}
	if r.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, path, r.Status, data)
	}
	if to == nil {
		return nil
	}
	return json.Unmarshal(data, to)
}
