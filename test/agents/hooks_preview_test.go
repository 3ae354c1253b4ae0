//go:build linux

package agents

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestClaudeCodeShowsWhatACommandWouldChange: a command for which Claude Code asks the person runs in a throw-away clone
// first. Its effects reach the model, and the question for the second call. Here nobody answers that one, so nothing is
// real, and no sandbox is left. Cost: three seconds beside the installation.
func TestClaudeCodeShowsWhatACommandWouldChange(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "@anthropic-ai/claude-code@2.1.331")
	h := hookedDesk(t, "claude", "--preview")
	call := toolCall{"Bash", M{"command": "echo new > made; rm dirty", "description": "x"}}
	s := newScript(t, map[string][]turn{"main": {calls(call), calls(call)}})
	out := h.claude(bin, s, "--permission-mode", "default", "--output-format", "stream-json", "--verbose", "--include-hook-events")
	r := s.results["main"]
	if len(r) != 2 {
		t.Fatalf("results: %q\n%s", r, out)
	}
	for _, want := range []string{"throw-away copy of " + h.work, "network none", "It changed 2 paths", "dirty", "made", "call the tool again"} {
		if !strings.Contains(r[0], want) {
			t.Errorf("the model reads no %q:\n%s", want, r[0])
		}
	}
	if strings.Contains(r[1], "call the tool again") {
		t.Errorf("the second call was tried too:\n%s", r[1])
	}
	asked := false
	for line := range strings.Lines(out) {
		asked = asked || strings.Contains(line, "hook_response") && strings.Contains(line, `\"permissionDecision\":\"ask\"`) && strings.Contains(line, "It changed 2 paths")
	}
	if !asked {
		t.Errorf("the question has no effects:\n%s", out)
	}
	if got := h.real("made"); !strings.Contains(got, "no such file") || h.real("dirty") != "uncommitted\n" {
		t.Errorf("nobody allowed it, and the real files are %q and %q", got, h.real("dirty"))
	}
	if names := h.sandboxes(); len(names) > 0 {
		t.Errorf("sandboxes are left: %v", names)
	}
}
