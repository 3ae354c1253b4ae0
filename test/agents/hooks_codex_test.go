//go:build linux

package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A codexServer is a running `codex app-server`, which an editor's extension talks to.
type codexServer struct {
	t  *testing.T
	in *json.Encoder
	// messages are those of the server, up to its end.
	messages chan M
	end      func()
}

// codexServer starts the server of Codex with a scripted model in the workspace.
func (h *hooked) codexServer(bin string, s *script) *codexServer {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, bin+"/codex", "app-server", "-c", "model_provider=fake", "-c", "model=gpt-5.5",
		"-c", "model_providers.fake={name='fake',base_url='"+s.URL+"/v1',wire_api='responses',env_key='FAKE_KEY'}", "-c", "analytics.enabled=false")
	cmd.Dir, cmd.WaitDelay = h.work, time.Second
	cmd.Env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TERM=dumb", "LANG=C.UTF-8", "FAKE_KEY=x"}, h.environment()...)
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	c := &codexServer{h.t, json.NewEncoder(in), make(chan M), func() { cancel(); _ = cmd.Wait() }}
	go func() {
		defer close(c.messages)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var m M
			if json.Unmarshal(lines.Bytes(), &m) == nil {
				select {
				case c.messages <- m:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	c.await(c.request(1, "initialize", M{"clientInfo": M{"name": "test", "version": "1"}})) //nolint:misspell // the protocol's name
	c.send(M{"method": "initialized"})                                                      //nolint:misspell // the protocol's name
	return c
}

func (c *codexServer) send(m M) {
	c.t.Helper()
	if err := c.in.Encode(m); err != nil {
		c.t.Fatal(err)
	}
}

// request sends a request with the number id, and returns a condition for its answer.
func (c *codexServer) request(id int, method string, params M) func(M) bool {
	c.t.Helper()
	c.send(M{"id": id, "method": method, "params": params})
	return func(m M) bool { return m["id"] == float64(id) && m["method"] == nil }
}

// await returns the next message for which is holds, as JSON.
func (c *codexServer) await(is func(M) bool) string {
	c.t.Helper()
	for m := range c.messages {
		if is(m) {
			return jsonOf(c.t, m)
		}
	}
	c.t.Fatal("the server has ended")
	return ""
}

func named(method string) func(M) bool { return func(m M) bool { return m["method"] == method } }

// TestCodexShowsWhatACommandWouldChange: before Codex asks the person for a command, a warning has its effects in a
// throw-away clone, and nothing else changes.
func TestCodexShowsWhatACommandWouldChange(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "@openai/codex@0.169.0")
	h := hookedDesk(t, "codex", "--preview")
	s := newScript(t, map[string][]turn{"main": {calls(toolCall{"exec_command", M{"cmd": "echo new > made; rm dirty"}})}})
	first := h.codexServer(bin, s)
	var listed struct {
		Result struct {
			Data []struct {
				Hooks []struct{ Key, CurrentHash string }
			}
		}
	}
	err := json.Unmarshal([]byte(first.await(first.request(2, "hooks/list", M{"cwds": []string{h.work}}))), &listed)
	first.end()
	if err != nil || len(listed.Result.Data) != 1 {
		t.Fatalf("%+v, %v", listed, err)
	}
	var trust strings.Builder // as a person gives it with /hooks
	for _, hook := range listed.Result.Data[0].Hooks {
		fmt.Fprintf(&trust, "[hooks.state.%q]\ntrusted_hash = %q\n", hook.Key, hook.CurrentHash)
	}
	if err := os.WriteFile(filepath.Join(h.home, ".codex/config.toml"), []byte(trust.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c := h.codexServer(bin, s)
	defer c.end()
	var thread struct {
		Result struct{ Thread struct{ ID string } }
	}
	if err := json.Unmarshal([]byte(c.await(c.request(2, "thread/start", M{"cwd": h.work, "approvalPolicy": "untrusted", "sandbox": "read-only"}))), &thread); err != nil {
		t.Fatal(err)
	}
	c.request(3, "turn/start", M{"threadId": thread.Result.Thread.ID, "input": []M{{"type": "text", "text": "task:main"}}})
	warned := false
	question := c.await(func(m M) bool {
		text := jsonOf(t, m)
		warned = warned || m["method"] == "hook/completed" && strings.Contains(text, `"kind":"warning"`) && strings.Contains(text, "It changed 2 paths")
		return m["method"] == "item/commandExecution/requestApproval"
	})
	if !warned {
		t.Errorf("no warning comes before the question %s", question)
	}
	c.send(M{"id": 0, "result": M{"decision": "decline"}})
	c.await(named("turn/completed"))
	if got := h.real("made"); !strings.Contains(got, "no such file") || h.real("dirty") != "uncommitted\n" {
		t.Errorf("nobody allowed it, and the real files are %q and %q", got, h.real("dirty"))
	}
	if names := h.sandboxes(); len(names) > 0 {
		t.Errorf("sandboxes are left: %v", names)
	}
}
