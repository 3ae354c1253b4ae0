//go:build linux

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/client"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/local"
)

func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(m.Run, func(context.Context, string) error { return nil }))
}

//go:generate go test -count=1 -run TestTheDocumentIsThatOfTheRoutes . -args -write-document
//go:generate go generate ../client

var writeDocument = flag.Bool("write-document", false, "write docs/api/openapi.json")

// TestTheDocumentIsThatOfTheRoutes: docs/api/openapi.json is made of the routes.
func TestTheDocumentIsThatOfTheRoutes(t *testing.T) {
	const path = "../../docs/api/openapi.json"
	raw, err := New(Options{}).Document()
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	want := append(indented.Bytes(), '\n')
	if *writeDocument {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not that of the routes: go generate ./serve/api (%v)", path, err)
	}
}

// A desk is a workspace with a state directory and a server.
type desk struct {
	t           *testing.T
	work, state string
	api         *API
	client      *http.Client
	c           *client.ClientWithResponses // sends by client
	base        string                      // of URLs
	token       string
}

// newDesk returns a desk whose server runs in this process and listens on its unix socket.
func newDesk(t *testing.T) *desk {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	d := newState(t)
	helper := files.NewHelper(treetest.Program(), "files")
	t.Cleanup(func() {
		if err := helper.Close(); err != nil {
			t.Error(err)
		}
	})
	shared := local.NewServer(d.state, treetest.Program())
	t.Cleanup(shared.Close)
	d.api = New(Options{
		State: d.state, Workspace: d.work, Program: treetest.Program(), Files: helper, Version: "test",
		Open: func(ctx context.Context) (*engine.Engine, error) {
			return local.Open(ctx, local.Options{State: d.state, Program: treetest.Program(), Server: shared, Notice: func(s string) { t.Log(s) }})
		},
	})
	d.api.recheck = 20 * time.Millisecond
	d.listen(Where{Socket: d.socket()})
	return d
}

// newState makes the directories, which the end of the test clears.
func newState(t *testing.T) *desk {
	t.Helper()
	dir := treetest.Dir(t)
	d := &desk{t: t, work: dir + "/work", state: dir + "/state"}
	if err := errors.Join(os.Mkdir(d.work, 0o755), os.WriteFile(d.work+"/a.txt", []byte("one\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var names []string
		if err := json.Unmarshal([]byte(d.snapfs("ls", "-q", "--json")), &names); err != nil {
			t.Error(err)
		}
		if len(names) > 0 {
			d.snapfs(append([]string{"rm"}, names...)...)
		}
		d.snapfs("gc")
	})
	return d
}

func (d *desk) socket() string { return filepath.Join(d.state, "s") }

// listen starts to serve, until the test ends, and makes the client one of that server.
func (d *desk) listen(w Where) (stop func()) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- d.api.Serve(ctx, w, func(address string) { ready <- address }) }()
	select {
	case address := <-ready:
		d.connect(address)
	case err := <-done:
		d.t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			d.client.CloseIdleConnections()
			cancel()
			if err := <-done; err != nil {
				d.t.Error(err)
			}
		}
	}
	d.t.Cleanup(stop)
	return stop
}

// connect makes the client one of the server at a TCP address or the path of a socket.
func (d *desk) connect(address string) {
	d.client, d.base = &http.Client{Timeout: time.Minute}, "http://"+address
	if filepath.IsAbs(address) {
		d.base = "http://snapfs"
		d.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var n net.Dialer
			return n.DialContext(ctx, "unix", address)
		}}
	}
	d.connectClient()
}

// authorize adds the token to a request, if there is one.
func (d *desk) authorize(_ context.Context, q *http.Request) error {
	if d.token != "" {
		q.Header.Set("Authorization", "Bearer "+d.token)
	}
	return nil
}

func (d *desk) snapfs(args ...string) string {
	d.t.Helper()
	cmd := exec.Command(treetest.Program(), append([]string{"--state", d.state}, args...)...)
	cmd.Dir, cmd.Stderr = d.work, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		d.t.Errorf("snapfs %q: %v", args, err)
	}
	return string(out)
}

// A reply is a response with its body.
type reply struct {
	*http.Response
	body string
}

// do sends a request. body is nil, a reader, or a value to send as JSON.
func (d *desk) do(method, path string, body any, headers ...string) reply {
	d.t.Helper()
	r, err := d.try(context.Background(), method, path, body, headers...)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{r, string(data)}
}

func (d *desk) try(ctx context.Context, method, path string, body any, headers ...string) (*http.Response, error) {
	kind, from := "", io.Reader(nil)
	switch b := body.(type) {
	case nil:
	case io.Reader:
		kind, from = fileType, b
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		kind, from = "application/json", bytes.NewReader(data)
	}
	q, err := http.NewRequestWithContext(ctx, method, d.base+path, from)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		q.Header.Set("Content-Type", kind)
	}
	if err := d.authorize(ctx, q); err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
	}
	return d.client.Do(q)
}

// want sends a request and fails the test unless the status is this one. It reads JSON into to, if that is not nil.
func (d *desk) want(status int, to any, method, path string, body any, headers ...string) reply {
	d.t.Helper()
	r := d.do(method, path, body, headers...)
	if r.StatusCode != status {
		d.t.Fatalf("%s %s: status %d, want %d: %s", method, path, r.StatusCode, status, r.body)
	}
	if status >= 400 && (r.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(r.body, `"kind"`)) {
		d.t.Errorf("%s %s: no problem: %s: %s", method, path, r.Header.Get("Content-Type"), r.body)
	}
	if to != nil {
		if err := json.Unmarshal([]byte(r.body), to); err != nil {
			d.t.Fatalf("%s %s: %v: %s", method, path, err, r.body)
		}
	}
	return r
}

// file is the path of the content of a file in the sandbox t1.
func file(path string, more ...string) string {
	return fmt.Sprintf("/v1/sandboxes/t1/files/content?path=%s%s", path, strings.Join(more, ""))
}
