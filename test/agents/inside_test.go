//go:build linux

package agents

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// An inside is a desk for agents that run in a sandbox as a whole: a home directory with settings and credentials,
// and a scripted model service by TLS on this host that wants the key.
type inside struct {
	*desk
	s    *script
	home string
	key  string
	base string // of the service, a URL

	marked     bool // a placeholder was in the memory of a process inside
	mu         sync.Mutex
	with, bare int // requests with the real key, and without
}

func newInside(t *testing.T, tasks map[string][]turn) *inside {
	t.Helper()
	treetest.NeedDevice(t, "/dev/net/tun")
	in := &inside{desk: newDesk(t), home: treetest.Dir(t)}
	random := make([]byte, 24)
	_, _ = rand.Read(random) // it never fails
	in.key = "sk-ant-api03-" + hex.EncodeToString(random)
	in.s = &script{tasks: tasks, last: map[string]string{}, results: map[string][]string{}}
	server, port := serveTLS(t, in, false)
	in.s.Server, in.base = server, "https://host.snapfs:"+port
	t.Setenv("HOME", in.home)
	for _, name := range []string{"CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CODEX_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"} {
		t.Setenv(name, "")
	}
	return in
}

// ServeHTTP counts the requests with the key, and answers by the script.
func (in *inside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in.mu.Lock()
	if r.Header.Get("X-Api-Key") == in.key || r.Header.Get("Authorization") == "Bearer "+in.key {
		in.with++
	} else {
		in.bare++
	}
	in.mu.Unlock()
	in.s.serve(w, r)
}

// put writes a file of the home directory.
func (in *inside) put(name, text string) {
	in.t.Helper()
	path := filepath.Join(in.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		in.t.Fatal(err)
	}
}

// clean fails the test if data has the real key.
func (in *inside) clean(where string, data []byte) {
	in.t.Helper()
	for _, form := range []string{in.key, hex.EncodeToString([]byte(in.key)), in.key[13:40]} {
		if bytes.Contains(data, []byte(form)) {
			in.t.Errorf("%s has the key", where)
		}
	}
}

// cleanProcesses looks for the key in the memory and the environment of every process of the sandbox.
func (in *inside) cleanProcesses(name string) {
	in.t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		in.t.Fatal(err)
	}
	found := 0
	for _, p := range all {
		environ, err := os.ReadFile("/proc/" + p.Name() + "/environ")
		if err != nil || !bytes.Contains(environ, []byte("SNAPFS_SANDBOX="+name+"\x00")) {
			continue
		}
		in.clean("the environment of a process inside", environ)
		if in.cleanMemory(p.Name()) {
			found++
		}
	}
	if found == 0 || !in.marked {
		in.t.Errorf("found %d processes inside; with a placeholder: %v", found, in.marked)
	}
}

// cleanMemory looks for the key in the memory of a process, and reports whether it could be read.
func (in *inside) cleanMemory(pid string) bool {
	in.t.Helper()
	maps, err := os.ReadFile("/proc/" + pid + "/maps")
	if err != nil {
		return false // it has ended
	}
	mem, err := os.Open("/proc/" + pid + "/mem")
	if err != nil {
		return false // likewise
	}
	defer mem.Close()
	pages, err := os.Open("/proc/" + pid + "/pagemap")
	if err != nil {
		return false // likewise
	}
	defer pages.Close()
	read, buffer := 0, make([]byte, 1<<20)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || mode[0] != 'r' || mode[1] != 'w' {
			continue // a key was written
		}
		for at := from; at < to; at += int64(len(buffer)) - 4096 { // a key may lie across the border
			if !isUsed(pages, at, len(buffer)) {
				continue // a JavaScript engine reserves gigabytes
			}
			n, err := mem.ReadAt(buffer[:min(int64(len(buffer)), to-at)], at)
			if n == 0 || err != nil {
				break // a part that cannot be read
			}
			in.clean("the memory of process "+pid, buffer[:n])
			in.marked = in.marked || bytes.Contains(buffer[:n], []byte("SnapfsPlaceholder"))
			read += n
		}
	}
	return read > 0
}

// isUsed reports whether the pages of size bytes of memory from at on have any content.
func isUsed(pages *os.File, at int64, size int) bool {
	const page, entry = 4096, 8
	entries := make([]byte, size/page*entry)
	n, _ := pages.ReadAt(entries, at/page*entry)
	for i := entry - 1; i < n; i += entry {
		if entries[i]&0xc0 != 0 { // in memory, or swapped out
			return true
		}
	}
	return false
}

// cleanTree looks for the key in every file below dir.
func (in *inside) cleanTree(dir string) {
	in.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var data []byte
		if err == nil && d.Type().IsRegular() {
			data, err = os.ReadFile(path)
		}
		in.clean(path, data)
		if errors.Is(err, fs.ErrNotExist) { // the backend cleans up
			return nil
		}
		return err
	})
	if err != nil {
		in.t.Error(err)
	}
}

// agentRun runs an agent in the sandbox fix, and returns what it and snapfs print.
func (in *inside) agentRun(bin, agent string, flags []string, args ...string) string {
	in.t.Helper()
	cmd := in.command(append(append([]string{"agent", "run", agent, "--name", "fix"}, flags...), append([]string{"--"}, args...)...)...)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "TERM=dumb")
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = nil, &out, &out, time.Second
	if err := cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	stuck := time.AfterFunc(4*time.Minute, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	if err := cmd.Wait(); err != nil {
		in.t.Errorf("agent run: %v", err)
	}
	return out.String()
}

// finished checks a session that has ended: what its tools printed, who has the key, and that the result is promoted.
func (in *inside) finished(out, task string) {
	in.t.Helper()
	in.t.Logf("the client said: %s", out)
	r := strings.Join(in.s.results[task], "\n")
	in.clean("a result of a tool", []byte(r))
	in.clean("the output", []byte(out))
	for _, want := range []string{"SnapfsPlaceholder", "by-shell", "SETTINGS-OF-THE-USER"} {
		if !strings.Contains(r, want) {
			in.t.Errorf("no %q in the results:\n%s", want, r)
		}
	}
	in.mu.Lock()
	if in.with < 3 || in.bare > 0 {
		in.t.Errorf("the service got %d requests with the key and %d without", in.with, in.bare)
	}
	in.mu.Unlock()
	if !strings.Contains(out, "snapfs promote fix") || !strings.Contains(in.real("made"), "no such file") {
		in.t.Errorf("before the promotion: %q", in.real("made"))
	}
	in.cleanTree(in.state)
	if out, err := in.command("promote", "fix").CombinedOutput(); err != nil || in.real("made") != "by-shell\n" {
		in.t.Errorf("after the promotion: %v %q\n%s", err, in.real("made"), out)
	}
	for _, args := range [][]string{{"show", "--json", "fix"}, {"net", "--json", "fix"}, {"events"}, {"log", "fix"}} {
		out, _ := in.snapfs(args...)
		in.clean(strings.Join(args, " "), []byte(out))
	}
}

// looked returns a turn that looks for the key in the sandbox's processes, once, and then makes the calls.
func (in *inside) looked(all ...toolCall) turn {
	var once sync.Once
	return func([]string) []toolCall {
		once.Do(func() { in.cleanProcesses("fix") })
		return all
	}
}

// TestClaudeCodeRunsInsideWithoutItsKey: the agent's own process is in the sandbox, its key outside, and its result
// promoted. Cost: ten seconds beside the installation.
func TestClaudeCodeRunsInsideWithoutItsKey(t *testing.T) {
	treetest.OncePerRun(t)
	if !treetest.Long(t) {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "@anthropic-ai/claude-code@2.1.331")
	tasks := map[string][]turn{}
	in := newInside(t, tasks)
	shell := func(command string) toolCall { return toolCall{"Bash", M{"command": command, "description": "x"}} }
	tasks["main"] = []turn{
		calls(shell(`env; cat "$CLAUDE_CONFIG_DIR"/* "$CLAUDE_CONFIG_DIR"/.claude.json; ls -la ~ ~/.claude; cat ~/.claude/.credentials.json; true`)),
		in.looked(shell("echo by-shell > made; cat made")),
	}
	t.Setenv("ANTHROPIC_API_KEY", in.key)
	t.Setenv("ANTHROPIC_BASE_URL", in.base)
	in.put(".claude/CLAUDE.md", "SETTINGS-OF-THE-USER\n")
	in.put(".claude/settings.json", `{"env": {"ANTHROPIC_API_KEY": "`+in.key+`", "LEFT": "x"}, "apiKeyHelper": "echo `+in.key+`"}`)
	in.put(".claude/.credentials.json", `{"claudeAiOauth": {"accessToken": "`+in.key+`"}}`)
	in.put(".claude/agents/leak.md", "the key is "+in.key)
	out := in.agentRun(bin, "claude", nil, "-p", "task:main", "--strict-mcp-config", "--dangerously-skip-permissions")
	in.finished(out, "main")
	if !strings.Contains(out, "agents/leak.md: it holds the key") {
		t.Errorf("it does not say that a file was left out: %s", out)
	}
}

// TestCodexRunsInsideWithoutItsKey: the same with Codex, whose key is in the file of its sign-in.
func TestCodexRunsInsideWithoutItsKey(t *testing.T) {
	treetest.OncePerRun(t)
	if !treetest.Long(t) {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "@openai/codex@0.169.0")
	tasks := map[string][]turn{}
	in := newInside(t, tasks)
	shell := func(command string) toolCall { return toolCall{"exec_command", M{"cmd": command}} }
	tasks["main"] = []turn{
		calls(shell(`env; cat "$CODEX_HOME"/*.toml "$CODEX_HOME"/*.md "$CODEX_HOME"/auth.json ~/.codex/auth.json; true`)),
		in.looked(shell("echo by-shell > made; cat made")),
	}
	t.Setenv("OPENAI_BASE_URL", in.base+"/v1")
	in.put(".codex/auth.json", `{"OPENAI_API_KEY": "`+in.key+`"}`)
	in.put(".codex/AGENTS.md", "SETTINGS-OF-THE-USER\n")
	in.put(".codex/config.toml", "model = \"gpt-5.2-codex\"\n[mcp_servers.x]\ncommand = \"true\"\nenabled = false\n[mcp_servers.x.env]\nTOKEN = \""+in.key+"\"\n[analytics]\nenabled = false\n")
	in.finished(in.agentRun(bin, "codex", nil, "exec", "--json", "--skip-git-repo-check", "task:main"), "main")
}

// TestOpencodeRunsInsideWithoutItsKey: the same with opencode.
func TestOpencodeRunsInsideWithoutItsKey(t *testing.T) {
	treetest.OncePerRun(t)
	if !treetest.Long(t) {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "opencode-ai@1.18.33")
	tasks := map[string][]turn{}
	in := newInside(t, tasks)
	shell := func(command string) toolCall { return toolCall{"bash", M{"command": command, "description": "x"}} }
	tasks["main"] = []turn{
		calls(shell(`env; cat "$XDG_CONFIG_HOME"/opencode/opencode.json "$XDG_CONFIG_HOME"/opencode/AGENTS.md ~/.config/opencode/opencode.json; cat "$XDG_CONFIG_HOME"/other/settings ~/.local/share/opencode/auth.json; true`)),
		in.looked(shell("echo by-shell > made; cat made")),
	}
	t.Setenv("ANTHROPIC_BASE_URL", in.base)
	in.put(".local/share/opencode/auth.json", `{"anthropic": {"type": "api", "key": "`+in.key+`"}}`)
	in.put(".config/other/settings", "OF-ANOTHER-PROGRAM\n")
	in.put(".config/opencode/AGENTS.md", "SETTINGS-OF-THE-USER\n")
	in.put(".config/opencode/opencode.json", jsonOf(t, M{
		"autoupdate": false, "share": "disabled", "model": "fake/fake", "small_model": "fake/fake", "permission": M{"*": "allow"},
		"provider": M{
			"fake": M{
				"npm": "@ai-sdk/openai-compatible", "options": M{"baseURL": in.base + "/v1", "apiKey": "{env:ANTHROPIC_API_KEY}"},
				"models": M{"fake": M{"tool_call": true, "limit": M{"context": 100000, "output": 4000}}},
			},
			"other": M{"options": M{"apiKey": in.key}},
		},
	}))
	in.finished(in.agentRun(bin, "opencode", []string{"--env", "OPENCODE_DISABLE_MODELS_FETCH=1"}, "run", "--format", "json", "task:main"), "main")
	if r := in.s.results["main"]; !strings.Contains(strings.Join(r, ""), "OF-ANOTHER-PROGRAM") {
		t.Error("the settings of other programs are not seen")
	}
}

// TestASessionOfClaudeCodeGoesOnAfterItsBudgetIsRaised: at the limit the whole agent is paused, and nothing of its
// session is lost. Cost: ten seconds beside the installation.
func TestASessionOfClaudeCodeGoesOnAfterItsBudgetIsRaised(t *testing.T) {
	treetest.OncePerRun(t)
	if !treetest.Long(t) {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "@anthropic-ai/claude-code@2.1.331")
	shell := func(command string) toolCall { return toolCall{"Bash", M{"command": command, "description": "x"}} }
	in := newInside(t, map[string][]turn{"main": {calls(shell("echo one > made")), calls(shell("echo two >> made")), calls(shell("cat made"))}})
	in.s.usage = 900_000 // each answer costs nearly the whole budget
	t.Setenv("ANTHROPIC_API_KEY", in.key)
	t.Setenv("ANTHROPIC_BASE_URL", in.base)
	in.put("agent.toml", "extends = \"agent-claude\"\n[budget]\ntokens = 1_000_000\n")
	raised := make(chan int, 1)
	ended := make(chan struct{})
	go func() {
		n := 0
		defer func() { raised <- n }()
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond): // looks again
			}
			out, _ := in.snapfs("show", "--json", "fix")
			if !strings.Contains(out, `"limit":"budget"`) && !strings.Contains(out, `"limit": "budget"`) || !strings.Contains(out, `"paused"`) {
				continue
			}
			if out, err := in.command("budget", "raise", "fix", "tokens", "+1000000").CombinedOutput(); err != nil {
				t.Errorf("budget raise: %v\n%s", err, out)
				return
			}
			n++
		}
	}()
	out := in.agentRun(bin, "claude", []string{"--profile", in.home + "/agent.toml"}, "-p", "task:main", "--strict-mcp-config", "--dangerously-skip-permissions")
	close(ended)
	t.Logf("the client said: %s", out)
	if n := <-raised; n < 2 {
		t.Errorf("the session was paused %d times", n)
	}
	if r := strings.Join(in.s.results["main"], "\n"); !strings.Contains(r, "two") || !strings.Contains(out, "paused: the budget tokens of 1000000") {
		t.Errorf("results:\n%s", r)
	}
	if out, err := in.command("promote", "fix").CombinedOutput(); err != nil || in.real("made") != "one\ntwo\n" {
		t.Errorf("after the promotion: %v %q\n%s", err, in.real("made"), out)
	}
}

// TestAgentRunSaysWhatIsMissing: without the program, without a key, with a service without TLS, nothing starts.
func TestAgentRunSaysWhatIsMissing(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	home, bin := treetest.Dir(t), treetest.Dir(t)
	if err := os.WriteFile(bin+"/claude", []byte("#!/bin/sh\necho started\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(want string, env []string, args ...string) {
		t.Helper()
		cmd := d.command(append([]string{"agent", "run"}, args...)...)
		cmd.Env = append(cmd.Env, "HOME="+home, "CLAUDE_CONFIG_DIR=", "CODEX_HOME=", "ANTHROPIC_API_KEY=", "CLAUDE_CODE_OAUTH_TOKEN=", "ANTHROPIC_AUTH_TOKEN=", "ANTHROPIC_BASE_URL=", "PATH=/usr/bin:/bin:"+bin)
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "started") {
			t.Errorf("%v: %v, not %q:\n%s", args, err, want, out)
		}
	}
	run("no such agent; there are claude, codex, opencode", nil, "gemini")
	run("no program named codex", nil, "codex")
	run("npm install -g @openai/codex", nil, "codex")
	run("ANTHROPIC_API_KEY", nil, "claude")
	run(filepath.Join(home, ".claude/.credentials.json"), nil, "claude")
	run("write -- before", nil, "claude", "x")
	run("over TLS alone", []string{"ANTHROPIC_API_KEY=x", "ANTHROPIC_BASE_URL=http://127.0.0.1:4000"}, "claude")
	if err := errors.Join(os.Mkdir(home+"/.claude", 0o700), os.WriteFile(home+"/.claude/.credentials.json", []byte(`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-x","expiresAt":1}}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	run("has expired", nil, "claude")
	if out, err := d.snapfs("ls", "-q"); err != nil || out != "" {
		t.Errorf("a sandbox is left: %v %q", err, out)
	}
}
