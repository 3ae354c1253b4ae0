//go:build linux

package agents

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

var (
	//go:embed testdata/e2bsession.py
	e2bPython string
	//go:embed testdata/e2bagents.py
	e2bAgents string
	//go:embed testdata/e2bsession.mjs
	e2bJavaScript string
)

// The versions of E2B's clients, and of a framework that uses one.
const (
	e2bPyPI      = "e2b==2.63.0"
	e2bNPM       = "e2b@2.51.0"
	openaiAgents = "openai-agents==0.24.0"
)

// An e2bServer is a server of E2B's wire.
type e2bServer struct {
	t   *testing.T
	cmd *exec.Cmd
	env []string // of its clients
	url string
}

// serveE2B starts a server of E2B's wire. The caller ends it.
func (d *desk) serveE2B() *e2bServer {
	d.t.Helper()
	key := filepath.Join(treetest.Dir(d.t), "key")
	if err := os.WriteFile(key, []byte("the-key\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	s := &e2bServer{t: d.t, cmd: d.command("serve", "--e2b", "--listen", "127.0.0.1:0", "--e2b-key", key, "-C", d.work)}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		d.t.Fatal(err)
	}
	s.env = append(strings.Fields(line), "E2B_API_KEY=the-key", "WORK="+d.work)
	s.url = strings.TrimPrefix(s.env[0], "E2B_API_URL=")
	return s
}

// end ends the server as a person does, and fails the test unless it ends well.
func (s *e2bServer) end() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server's end: %v", err)
	}
}

// request sends a request and decodes the reply into v if that is not nil.
func (s *e2bServer) request(method, path, body string, v any, headers ...string) int {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header.Set("X-Api-Key", "the-key")
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	reply, err := http.DefaultClient.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(reply.Body)
	if err == nil && v != nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		s.t.Fatalf("%s %s: %d %v: %s", method, path, reply.StatusCode, err, data)
	}
	return reply.StatusCode
}

// TestAKilledServerOfE2BLosesNoSandbox: the next one knows the sandbox, its files and its client's data. The commands
// that the killed one ran are gone. Cost: a second.
func TestAKilledServerOfE2BLosesNoSandbox(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	first := d.serveE2B()
	var made, found struct {
		SandboxID       string
		EnvdAccessToken string
		Metadata        map[string]string
	}
	if code := first.request(http.MethodPost, "/v2/sandboxes", `{"metadata":{"a":"b"},"timeout":1000}`, &made); code != http.StatusCreated {
		t.Fatal(code)
	}
	agent := []string{"E2b-Sandbox-Id", made.SandboxID, "X-Access-Token", made.EnvdAccessToken}
	if code := first.request(http.MethodPost, "/files?path=f", "content", nil, agent...); code != http.StatusOK {
		t.Fatal(code)
	}
	start := `{"process":{"cmd":"/bin/sleep","args":["1000"]}}`
	frame := string(append([]byte{0, 0, 0, 0, byte(len(start))}, start...))
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, first.url+"/process.Process/Start", strings.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/connect+json")
	q.Header.Set(agent[0], agent[1])
	q.Header.Set(agent[2], agent[3])
	stream, err := http.DefaultClient.Do(q)
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatal(err, stream)
	}
	defer stream.Body.Close()
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait() // it was killed
	second := d.serveE2B()
	defer second.end()
	if code := second.request(http.MethodGet, "/sandboxes/"+made.SandboxID, "", &found); code != http.StatusOK || found.Metadata["a"] != "b" || found.EnvdAccessToken != made.EnvdAccessToken {
		t.Errorf("%d %+v", code, found)
	}
	if code := second.request(http.MethodGet, "/files?path=f", "", nil, agent...); code != http.StatusOK {
		t.Error(code)
	}
	out, err := d.snapfs("exec", made.SandboxID, "--", "sh", "-c", "cat f; ! pgrep -x sleep")
	if err != nil || out != "content" {
		t.Errorf("in the sandbox: %q, %v", out, err)
	}
}

// pip installs packages, once, and returns the Python that has them.
func pip(t *testing.T, packages ...string) string {
	t.Helper()
	what := strings.Join(packages, " ")
	return once(t, "pip "+what, func(dir string) {
		installed(t, what, "python3", "-m", "venv", "--without-pip", dir)
		// Without compiling: most modules are never imported, and compiling them takes longer than the rest.
		args := append([]string{"python3", "-m", "pip", "--python", dir + "/bin/python", "install", "--no-compile", "--quiet", "--disable-pip-version-check", "--no-cache-dir"}, packages...)
		installed(t, what, args...)
	}) + "/bin/python"
}

// TestClientsOfE2BRunAWholeSession: the clients for Python and for JavaScript, and a framework, unchanged as their
// registries have them. Only make test-long runs it: it fetches 100 MB.
func TestClientsOfE2BRunAWholeSession(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	t.Run("python", func(t *testing.T) {
		d := newDesk(t)
		python := pip(t, e2bPyPI)
		s := d.serveE2B()
		defer s.end()
		out, err := d.run(append(s.env, "LEAVE=1"), python, "-c", e2bPython)
		if err != nil || !strings.HasSuffix(out, "done\n") {
			t.Fatalf("%v\n%s", err, out)
		}
		// The sandbox that the client has left is the person's to promote.
		_, id, _ := strings.Cut(out, "\nid ")
		id, _, _ = strings.Cut(id, "\n")
		if _, err := d.snapfs("promote", "--only", "add.sh", id); err != nil || d.real("add.sh") != "echo $(($1 + $2))\n" {
			t.Errorf("promote %s: %v; the real file is %q", id, err, d.real("add.sh"))
		}
	})
	t.Run("openai-agents", func(t *testing.T) {
		d := newDesk(t)
		python := pip(t, openaiAgents, e2bPyPI)
		s := d.serveE2B()
		defer s.end()
		out, err := d.run(s.env, python, "-c", e2bAgents)
		if err != nil || !strings.HasSuffix(out, "done\n") {
			t.Fatalf("%v\n%s", err, out)
		}
	})
	t.Run("javascript", func(t *testing.T) {
		d := newDesk(t)
		treetest.NeedProgram(t, "node")
		modules := filepath.Dir(npm(t, e2bNPM))
		script := filepath.Join(filepath.Dir(modules), "session.mjs") // where its import finds the package
		if err := os.WriteFile(script, []byte(e2bJavaScript), 0o644); err != nil {
			t.Fatal(err)
		}
		s := d.serveE2B()
		defer s.end()
		out, err := d.run(s.env, "node", script)
		if err != nil || !strings.HasSuffix(out, "done\n") {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}
