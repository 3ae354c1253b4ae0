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
