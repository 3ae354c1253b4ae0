package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/e2b"
	"github.com/snapfs/snapfs/serve/e2b/envd"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/local"
)

func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(m.Run, func(context.Context, string) error { return nil }))
}

// M is a body of JSON.
type M = map[string]any

// A desk is a server with a workspace that has a file "a", and a client of it.
type desk struct {
	t    *testing.T
	work string
	url  string
	open func(ctx context.Context) (*engine.Engine, error)
	key  string
}

// newDesk starts a server, whose sandboxes are removed at the end of the test.
func newDesk(t *testing.T, change ...func(*e2b.Options)) *desk {
	t.Helper()
	treetest.Leaks(t)
	dir := treetest.Dir(t)
	d := &desk{t: t, work: filepath.Join(dir, "work"), key: "any"}
	if err := errors.Join(os.Mkdir(d.work, 0o755), os.WriteFile(filepath.Join(d.work, "a"), []byte("real"), 0o644)); err != nil {
		t.Fatal(err)
	}
	shared := local.NewServer(filepath.Join(dir, "state"), treetest.Program())
	t.Cleanup(shared.Close)
	d.open = func(ctx context.Context) (*engine.Engine, error) {
		return local.Open(ctx, local.Options{State: filepath.Join(dir, "state"), Program: treetest.Program(), Server: shared, Notice: func(s string) { t.Log(s) }})
	}
	t.Cleanup(func() {
		e, err := d.open(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		names, err := e.Names()
		if err != nil {
			t.Error(err)
		}
		for _, name := range names {
			if err := e.Remove(context.Background(), name); err != nil {
				t.Error(err)
			}
		}
		if _, err := e.Collect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return newServer(t, d, change...)
}

// newServer starts another server for the workspace and the state directory of a desk.
func newServer(t *testing.T, d *desk, change ...func(*e2b.Options)) *desk {
	t.Helper()
	o := e2b.Options{Open: d.open, Files: files.NewHelper(treetest.Program(), "files"), Rules: serve.Rules{Workspace: d.work}}
	o.Rules.Policy.Network = "none"
	for _, f := range change {
		f(&o)
	}
	handler := e2b.New(o)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		if err := errors.Join(handler.Close(), o.Files.Close()); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	other := *d
	other.url = server.URL
	return &other
}

// request sends a request and returns the status and the body of the reply.
func (d *desk) request(method, path string, body any, headers ...string) (*http.Response, []byte) {
	d.t.Helper()
	var from io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		from = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			d.t.Fatal(err)
		}
		from = bytes.NewReader(data)
	}
	q, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, from)
	if err != nil {
		d.t.Fatal(err)
	}
	q.Header.Set("X-Api-Key", d.key)
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
		q.Header.Set(headers[i], headers[i+1])
	}
	reply, err := http.DefaultClient.Do(q)
	if err != nil {
		d.t.Fatal(err)
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return reply, data
}

// do sends a request whose reply must have a status, and decodes the body into v if that is not nil.
func (d *desk) do(status int, method, path string, body, v any, headers ...string) http.Header {
	d.t.Helper()
	reply, data := d.request(method, path, body, headers...)
	if reply.StatusCode != status {
		d.t.Fatalf("%s %s: status %d, want %d: %s", method, path, reply.StatusCode, status, data)
	}
	if v != nil {
		if err := json.Unmarshal(data, v); err != nil {
			d.t.Fatalf("%s %s: %v: %s", method, path, err, data)
		}
	}
	return reply.Header
}

// A sandbox is one that the test's client has made.
type sandbox struct {
	d *desk

	SandboxID, TemplateID string
	Token                 string `json:"envdAccessToken"`
	Traffic               string `json:"trafficAccessToken"`
	Domain                string
	process               envd.ProcessClient
	files                 envd.FilesystemClient
}

// create makes a sandbox. body may be nil.
func (d *desk) create(body M) *sandbox {
	d.t.Helper()
	s := &sandbox{d: d}
	if body == nil {
		body = M{}
	}
	d.do(http.StatusCreated, http.MethodPost, "/v2/sandboxes", body, s)
	return s.dial()
}

// dial connects the clients of the sandbox's agent, which send their headers.
func (s *sandbox) dial(options ...connect.ClientOption) *sandbox {
	client := &http.Client{Transport: visitor{s.SandboxID, s.Token}}
	s.process = envd.NewProcessClient(client, s.d.url, options...)
	s.files = envd.NewFilesystemClient(client, s.d.url, options...)
	return s
}

// A visitor adds the headers of a request for an agent.
type visitor struct{ id, token string }

func (v visitor) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.Header.Set("E2b-Sandbox-Id", v.id)
	q.Header.Set("E2b-Sandbox-Port", "49983")
	q.Header.Set("X-Access-Token", v.token)
	return http.DefaultTransport.RoundTrip(q)
}

// headers returns the headers of a request for the agent.
func (s *sandbox) headers() []string {
	return []string{"E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", "49983", "X-Access-Token", s.Token}
}

// shell returns the request for a shell command, as the clients send it.
func shell(text string) *envd.StartRequest {
	no := false
	return &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", text}}, Stdin: &no}
}

// A result is how a command ended.
type result struct {
	pid                 uint32
	stdout, stderr, pty string
	end                 *envd.ProcessEvent_EndEvent
}

// gather adds an event to a result.
func (r *result) gather(e *envd.ProcessEvent) {
	switch e := e.GetEvent().(type) {
	case *envd.ProcessEvent_Start:
		r.pid = e.Start.Pid
	case *envd.ProcessEvent_Data:
		r.stdout += string(e.Data.GetStdout())
		r.stderr += string(e.Data.GetStderr())
		r.pty += string(e.Data.GetPty())
	case *envd.ProcessEvent_End:
		r.end = e.End
	}
}

// run runs a command to its end.
func (s *sandbox) run(q *envd.StartRequest) (r result, err error) {
	s.d.t.Helper()
	ctx, cancel := context.WithTimeout(s.d.t.Context(), 30*time.Second)
	defer cancel()
	return s.runIn(ctx, q)
}

func (s *sandbox) runIn(ctx context.Context, q *envd.StartRequest) (r result, err error) {
	stream, err := s.process.Start(ctx, q)
	if err != nil {
		return r, err
	}
	defer stream.Close()
	for stream.Receive() {
		r.gather(stream.Msg().Event)
	}
	return r, stream.Err()
}

// sh runs a shell command that must succeed, and returns its output.
func (s *sandbox) sh(text string) string {
	s.d.t.Helper()
	r, err := s.run(shell(text))
	if err != nil || r.end.GetExitCode() != 0 || r.end == nil {
		s.d.t.Fatalf("%s: %v, %+v", text, err, r)
	}
	return r.stdout
}

// begin starts a command and returns once it runs. next returns the next event.
func (s *sandbox) begin(q *envd.StartRequest) (pid uint32, next func() *envd.ProcessEvent, stop func()) {
	s.d.t.Helper()
	ctx, cancel := context.WithTimeout(s.d.t.Context(), 30*time.Second)
	stream, err := s.process.Start(ctx, q)
	if err != nil || !stream.Receive() {
		cancel()
		s.d.t.Fatal(err, stream.Err())
	}
	pid = stream.Msg().Event.GetStart().GetPid()
	return pid, func() *envd.ProcessEvent {
			if !stream.Receive() {
				return nil
			}
			return stream.Msg().Event
		}, func() {
			cancel()
			_ = stream.Close() // it was cancelled
		}
}

func byPID(pid uint32) *envd.ProcessSelector {
	return &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: pid}}
}

// soon waits until something holds.
func (d *desk) soon(what string, holds func() bool) {
	d.t.Helper()
	for until := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			d.t.Fatalf("it does not come about that %s", what)
		}
	}
}

// refuses sends a request whose reply must have a status and a text.
func (d *desk) refuses(status int, text, method, path string, body any, headers ...string) {
	d.t.Helper()
	reply, data := d.request(method, path, body, headers...)
	if reply.StatusCode != status || !strings.Contains(string(data), text) {
		d.t.Errorf("%s %s: %d %s; want %d with %q", method, path, reply.StatusCode, data, status, text)
	}
}
