//go:build linux

package agents

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestASessionOfCodexWorksInAClone: installed for every session, the shell and apply_patch change the clone alone; a
// turn is undone; the rest is promoted. Codex reports that it does not trust the hooks. Cost: five seconds beside the
// installation.
func TestASessionOfCodexWorksInAClone(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "@openai/codex@0.169.0")
	h := hookedDesk(t, "codex", "--all")
	s := newScript(t, map[string][]turn{"main": {
		calls(toolCall{"exec_command", M{"cmd": "cat dirty dep; echo by-shell > made"}}),
		calls(toolCall{"apply_patch", M{"patch": "*** Begin Patch\n*** Update File: add.sh\n@@\n-echo $(($1 - $2))\n+echo $(($1 + $2))\n*** Add File: " + h.work + "/patched\n+by patch\n*** End Patch\n"}}),
		calls(toolCall{"exec_command", M{"cmd": "sh test.sh && cat patched && pwd"}}),
	}})
	status := h.run(nil, bin+"/codex", "--version") // so that its first start is over
	t.Log(status)
	h.run([]string{"FAKE_KEY=x"}, bin+"/codex", "exec", "--json", "--skip-git-repo-check", "-c", "model_provider=fake", "-c", "model=gpt-5.5",
		"-c", "model_providers.fake={name='fake',base_url='"+s.URL+"/v1',wire_api='responses',env_key='FAKE_KEY'}", "-c", "analytics.enabled=false",
		"--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "task:main")
	r := strings.Join(s.results["main"], "\n")
	for _, want := range []string{"uncommitted", "ignored", "by patch", h.work} {
		if !strings.Contains(r, want) {
			t.Errorf("no %q in the results:\n%s", want, r)
		}
	}
	if h.real("add.sh") != "echo $(($1 - $2))\n" || !strings.Contains(h.real("made"), "no such file") || !strings.Contains(h.real("patched"), "no such file") {
		t.Errorf("before the promotion: %q, %q, %q", h.real("add.sh"), h.real("made"), h.real("patched"))
	}
	h.unviewed()
	h.must("rollback", "--call", "codex")
	h.must("rollback", "--call", "codex")
	if out := h.must("diff", "codex"); strings.Contains(out, "patched") || !strings.Contains(out, "made") {
		t.Errorf("after two calls were undone: %s", out)
	}
	h.must("promote", "codex")
	if got := h.real("made"); got != "by-shell\n" {
		t.Errorf("after the promotion: %q", got)
	}
	cmd := h.command("agent", "status", "codex")
	cmd.Env = append(append(cmd.Env, h.environment()...), "PATH="+bin+":/usr/bin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "installed, not trusted") {
		t.Errorf("agent status: %v\n%s", err, out)
	}
}

// opencodeEnv returns the environment in which opencode has the model of s and these permissions.
func opencodeEnv(t *testing.T, s *script, permission M) []string {
	config := jsonOf(t, M{
		"autoupdate": false, "share": "disabled", "model": "fake/fake", "small_model": "fake/fake", "permission": permission,
		"provider": M{"fake": M{
			"npm": "@ai-sdk/openai-compatible", "options": M{"baseURL": s.URL + "/v1", "apiKey": "x"},
			"models": M{"fake": M{"tool_call": true, "limit": M{"context": 100000, "output": 4000}}},
		}},
	})
	return []string{"OPENCODE_CONFIG_CONTENT=" + config, "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
}

// TestASessionOfOpencodeWorksInAClone: the same with its plugin. Cost: twenty seconds beside the installation.
func TestASessionOfOpencodeWorksInAClone(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "opencode-ai@1.18.33")
	h := hookedDesk(t, "opencode", "--all")
	// It would install this by itself at its first start, in the background.
	installed(t, "@opencode-ai/plugin@1.18.33", "npm", "install", "--prefix", h.home+"/.config/opencode", "--no-audit", "--no-fund", "--cache", h.home+"/cache", "@opencode-ai/plugin@1.18.33")
	s := newScript(t, map[string][]turn{"main": {
		calls(toolCall{"bash", M{"command": "cat dirty dep; echo by-shell > made", "description": "x"}}),
		calls(toolCall{"write", M{"filePath": h.work + "/written", "content": "by its editor\n"}}),
		calls(toolCall{"bash", M{"command": "cat written; echo $(ls)", "description": "x"}}),
	}})
	h.run(opencodeEnv(t, s, M{"*": "allow"}), bin+"/opencode", "run", "--format", "json", "task:main")
	r := strings.Join(s.results["main"], "\n")
	for _, want := range []string{"uncommitted", "ignored", "by its editor", "made"} {
		if !strings.Contains(r, want) {
			t.Errorf("no %q in the results:\n%s", want, r)
		}
	}
	if !strings.Contains(h.real("made"), "no such file") || !strings.Contains(h.real("written"), "no such file") {
		t.Errorf("before the promotion: %q, %q", h.real("made"), h.real("written"))
	}
	h.unviewedSoon() // opencode has no event for its end: the view ends with the process
	h.must("promote", "opencode")
	if h.real("made") != "by-shell\n" || h.real("written") != "by its editor\n" {
		t.Errorf("after the promotion: %q, %q", h.real("made"), h.real("written"))
	}
}
