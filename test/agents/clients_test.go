//go:build linux

package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
)

// sessionSteps is the script that each client follows: new, edit, test, race three, promote the winner.
var sessionSteps = []step{
	{"new", M{"name": "fix"}},
	{"exec", M{"sandbox": "fix", "command": "cat > note.txt; sh test.sh", "stdin": "a note\n"}},
	{"exec", M{"sandbox": "fix", "command": "sed -i s/-/+/ add.sh; sh test.sh"}},
	{"diff", M{"sandbox": "fix"}},
	{"race", M{"name": "r", "commands": []string{"sed -i s/-/*/ add.sh", "sed -i s/-/+/ add.sh", "exit 1"}, "check": "sh test.sh", "first": true}},
	{"promote", M{"sandbox": "r-2"}},
	{"remove", M{"sandbox": "fix"}},
}

// TestRealClientsRunAWholeSession: Claude Code, Codex, the inspector and Python's client, unchanged as their
// registries have them, with a scripted model on loopback. Only make test-long runs it: it fetches a gigabyte.
func TestRealClientsRunAWholeSession(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	for name, client := range map[string]func(t *testing.T, d *desk) []string{
		"claude": claude, "codex": codex, "inspector": inspector, "python": python,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			results := client(t, d)
			if len(results) != len(sessionSteps) {
				t.Fatalf("%d results of %d steps:\n%s", len(results), len(sessionSteps), strings.Join(results, "\n"))
			}
			for i, want := range []string{"fix", "exit", "exit", "add.sh", "r-2", "", "removed"} {
				if !strings.Contains(results[i], want) {
					t.Errorf("%s: no %q in %s", sessionSteps[i].tool, want, results[i])
				}
			}
			if _, command, refused := strings.Cut(results[5], "hint: snapfs "); refused { // this client cannot ask
				command, _, _ = strings.Cut(command, `"`) // the end of a JSON string
				t.Logf("a person runs: snapfs %s", command)
				if out, err := exec.Command("sh", "-c", treetest.Program()+" "+command).CombinedOutput(); err != nil {
					t.Errorf("%s: %v %s", command, err, out)
				}
			} else {
				t.Log("the client asked a person")
			}
			if got := d.real("add.sh"); got != "echo $(($1 + $2))\n" {
				t.Errorf("after the session the real file is %q; promote: %s", got, results[5])
			}
			if got := d.real("note.txt"); !strings.Contains(got, "no such file") {
				t.Errorf("a file of another sandbox is real: %q", got)
			}
		})
	}
}

// installed runs an installation, twice if the first fails, and skips the test if the package cannot be had.
func installed(t *testing.T, what string, args ...string) {
	t.Helper()
	treetest.NeedProgram(t, args[0])
	temporary := treetest.Dir(t) // opencode's installation leaves a directory there
	var out []byte
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env, cmd.WaitDelay = append(os.Environ(), "TMPDIR="+temporary), time.Second
		var err error
		out, err = cmd.CombinedOutput()
		cancel()
		if err == nil {
			return
		}
		out = fmt.Appendf(out, "%v", err)
	}
	treetest.SkipUnreachable(t, "the package "+what, string(out[max(0, len(out)-400):]))
}

// once returns the directory in which install has put the packages that are named what. Only the first test that
// needs them installs them, also where several processes run the tests: their program removes the directory at its end.
func once(t *testing.T, what string, install func(dir string)) string {
	t.Helper()
	dir := filepath.Join(treetest.Built(), "packages-"+strings.NewReplacer("/", "_", " ", "_", "=", "_").Replace(what)) // no = for env(1)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // and unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := filepath.Join(dir, ".installed")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	install(dir)
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// npm installs packages, once, and returns the directory of their programs.
func npm(t *testing.T, packages ...string) string {
	t.Helper()
	what := strings.Join(packages, " ")
	dir := once(t, "npm "+what, func(dir string) {
		args := append([]string{"npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--no-update-notifier", "--cache", dir + "/cache"}, packages...)
		installed(t, what, args...)
	})
	return filepath.Join(dir, "node_modules/.bin")
}

// run runs a client to its end in a clean environment, and returns its standard output.
func (d *desk) run(env []string, name string, args ...string) (string, error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 3*time.Minute)
	defer cancel()
	home := treetest.Dir(d.t)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = d.work, time.Second
	cmd.Env = append([]string{"PATH=" + filepath.Dir(name) + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb", "LANG=C.UTF-8"}, env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s\n%s", filepath.Base(name), err, stderr.String(), out)
	}
	return string(out), err
}

// server returns the command line of the server, for a client's configuration.
func (d *desk) server() []string {
	return []string{treetest.Program(), "--state", d.state, "mcp", "-C", d.work}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// claude runs Claude Code. A hook answers the question, as a person would at its dialog.
func claude(t *testing.T, d *desk) []string {
	bin := npm(t, "@anthropic-ai/claude-code@2.1.331")
	m := newModel(t, sessionSteps)
	server := d.server()
	config := jsonOf(t, M{"mcpServers": M{"snapfs": M{"command": server[0], "args": server[1:]}}})
	asked := filepath.Join(treetest.Dir(t), "asked")
	answer := `{"hookSpecificOutput":{"hookEventName":"Elicitation","action":"accept","content":{"promote":true}}}`
	settings := jsonOf(t, M{"hooks": M{"Elicitation": []M{{"hooks": []M{{"type": "command", "command": "cat > " + asked + "; echo '" + answer + "'"}}}}}})
	out, err := d.run([]string{"IS_SANDBOX=1", "ANTHROPIC_BASE_URL=" + m.URL, "ANTHROPIC_API_KEY=sk-none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1"},
		bin+"/claude", "-p", "do it", "--strict-mcp-config", "--mcp-config", config, "--settings", settings, "--dangerously-skip-permissions",
		"--output-format", "stream-json", "--verbose")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(asked); err != nil || !strings.Contains(string(text), "change  add.sh") {
		t.Errorf("the person was asked: %v %s", err, text)
	}
	if len(m.last()) == 0 {
		t.Logf("the client said: %s", out)
	}
	return m.last()
}

// codex runs Codex, which has no person to ask in its exec mode.
func codex(t *testing.T, d *desk) []string {
	bin := npm(t, "@openai/codex@0.169.0")
	m := newModel(t, sessionSteps)
	server := d.server()
	out, err := d.run([]string{"NO_KEY=x"}, bin+"/codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
		"-c", "model_provider=none", "-c", "model=script", "-c", "analytics.enabled=false",
		"-c", "model_providers.none={name='none',base_url='"+m.URL+"/v1',wire_api='responses',env_key='NO_KEY'}",
		"-c", "mcp_servers.snapfs={command="+jsonOf(t, server[0])+",args="+jsonOf(t, server[1:])+",default_tools_approval_mode='approve'}", "do it")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.last()) == 0 {
		t.Logf("the client said: %s", out)
	}
	return m.last()
}

// inspector runs the inspector's command line, a process for each step.
func inspector(t *testing.T, d *desk) (results []string) {
	bin := npm(t, "@modelcontextprotocol/inspector@0.15.0")
	for _, s := range sessionSteps {
		args := append([]string{"--cli"}, d.server()...)
		args = append(args, "--method", "tools/call", "--tool-name", "sandbox_"+s.tool)
		for name, value := range s.args {
			text, ok := value.(string)
			if !ok {
				text = jsonOf(t, value)
			}
			args = append(args, "--tool-arg", name+"="+text)
		}
		out, err := d.run(nil, bin+"/mcp-inspector", args...)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, out)
	}
	return results
}

const pythonClient = `
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp import types
server, steps = json.loads(sys.argv[1]), json.loads(sys.argv[2])
async def ask(context, params):
    assert "change  add.sh" in params.message, params.message
    return types.ElicitResult(action="accept", content={"promote": True})
async def main():
    async with stdio_client(StdioServerParameters(command=server[0], args=server[1:])) as (r, w):
        async with ClientSession(r, w, elicitation_callback=ask) as s:
            await s.initialize()
            for tool, args in steps:
                print(json.dumps((await s.call_tool("sandbox_" + tool, args)).model_dump(mode="json")))
asyncio.run(main())
`

// python runs a program on Python's client.
func python(t *testing.T, d *desk) []string {
	program := pip(t, "mcp==2.3.0")
	var steps [][]any
	for _, s := range sessionSteps {
		steps = append(steps, []any{s.tool, s.args})
	}
	out, err := d.run(nil, program, "-c", pythonClient, jsonOf(t, d.server()), jsonOf(t, steps))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(out), "\n")
}
