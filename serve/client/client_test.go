package client_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/serve/client"
)

// answering returns a client, on a unix socket, of a server that answers every request with this status and body. The
// server checks the token.
func answering(t *testing.T, status int, kind, body string) *client.ClientWithResponses {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // t.TempDir is too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %s without its token", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	_ = s.Listener.Close() // in place of a port
	s.Listener = l
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c, err := client.AtSocket(path, client.Token("secret"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const problem = `{"type":"about:blank","title":"Not Found","status":404,"detail":"no sandbox named t1","kind":"not found","hints":["snapfs ls"]}`

// TestAProblemIsAnError: the server's reason arrives as an error with its fields.
func TestAProblemIsAnError(t *testing.T) {
	c := answering(t, 404, "application/problem+json", problem)
	_, streamed := collect(client.Stream[client.ExecEvent](c.Exec(t.Context(), "t1", nil, client.ExecRequest{})))
	for _, err := range []error{client.Err(c.GetSandboxWithResponse(t.Context(), "t1")), streamed} {
		var p *client.Problem
		if !errors.As(err, &p) || p.Status != 404 || p.Kind != "not found" || err.Error() != "no sandbox named t1" || len(p.Hints) != 1 {
			t.Errorf("%#v", err)
		}
	}
}

// TestAReplyThatIsNotOfSnapfsIsAnError: such as that of a proxy before the server.
func TestAReplyThatIsNotOfSnapfsIsAnError(t *testing.T) {
	c := answering(t, 502, "text/html", "<html>")
	_, streamed := collect(client.Stream[client.ExecEvent](c.Exec(t.Context(), "t1", nil, client.ExecRequest{})))
	for _, err := range []error{client.Err(c.GetSandboxWithResponse(t.Context(), "t1")), streamed} {
		if err == nil || err.Error() != "the server answered 502 Bad Gateway" {
			t.Error(err)
		}
	}
	nowhere, err := client.AtSocket("/nowhere/socket")
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Err(nowhere.HealthWithResponse(t.Context())); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := collect(client.Stream[client.ExecEvent](nowhere.Exec(t.Context(), "t1", nil, client.ExecRequest{}))); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestAStreamIsReadToItsEnd: with the lines that only keep the connection open, and an error where it breaks.
func TestAStreamIsReadToItsEnd(t *testing.T) {
	const lines = `{"type":"stdout","text":"one"}` + "\n\n\n" + `{"type":"exit","exit":{"exit":3}}` + "\n"
	c := answering(t, 200, client.NDJSON, lines)
	got, err := collect(client.Stream[client.ExecEvent](c.Exec(t.Context(), "t1", nil, client.ExecRequest{})))
	if err != nil || len(got) != 2 || got[0].Text != "one" || got[1].Exit == nil || got[1].Exit.Exit != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	c = answering(t, 200, client.NDJSON, lines[:len(lines)-5])
	if got, err := collect(client.Stream[client.ExecEvent](c.Exec(t.Context(), "t1", nil, client.ExecRequest{}))); !errors.Is(err, io.ErrUnexpectedEOF) || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// collect returns the values of a stream before its end or its error.
func collect[E any](stream func(yield func(E, error) bool)) (all []E, err error) {
	for e, err := range stream {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// TestTheDocumentedExampleIsCompiled: docs/serve.md shows the function fix of this package's example.
func TestTheDocumentedExampleIsCompiled(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	body := regexp.MustCompile(`(?s)\nfunc fix\(.*?\n}\n`).Find(source)
	var shown strings.Builder
	for line := range strings.Lines(strings.TrimSpace(string(body))) {
		fmt.Fprintf(&shown, "    %s", strings.ReplaceAll(line, "\t", "    "))
	}
	if body == nil || !strings.Contains(string(page), "\n"+shown.String()+"\n") {
		t.Errorf("docs/serve.md does not show:\n%s", shown.String())
	}
}
