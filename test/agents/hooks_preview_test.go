//go:build linux

package agents

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// TestOpencodeShowsWhatACommandWouldChange: the same with opencode, which shows the effects as a toast. Its server stands
// for its terminal: it has the same questions and toasts. Cost: ten seconds beside the installation.
func TestOpencodeShowsWhatACommandWouldChange(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "opencode-ai@1.18.33")
	h := hookedDesk(t, "opencode", "--preview")
	installed(t, "@opencode-ai/plugin@1.18.33", "npm", "install", "--prefix", h.home+"/.config/opencode", "--no-audit", "--no-fund", "--cache", h.home+"/cache", "@opencode-ai/plugin@1.18.33")
	s := newScript(t, map[string][]turn{"main": {calls(toolCall{"bash", M{"command": "echo new > made; rm dirty", "description": "x"}})}})
	server := exec.CommandContext(t.Context(), bin+"/opencode", "serve", "--hostname", "127.0.0.1", "--port", "0")
	server.Dir = h.work
	server.Env = append([]string{"PATH=" + filepath.Dir(bin) + ":" + os.Getenv("PATH"), "TERM=dumb", "LANG=C.UTF-8"}, append(h.environment(), opencodeEnv(t, s, M{"*": "allow", "bash": "ask"})...)...)
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	url := ""
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		_, url, _ = strings.Cut(lines.Text(), "listening on ")
	}
	events, err := http.Get(url + "/event") //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	post := func(path string, body M) (answer struct{ ID string }) {
		t.Helper()
		r, err := http.Post(url+path, "application/json", strings.NewReader(jsonOf(t, body))) //nolint:noctx // as above
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode >= 300 {
			t.Fatalf("%s: %v, %s, %s", path, err, r.Status, text)
		}
		_ = json.Unmarshal(text, &answer) // some answers have no id
		return answer
	}
	session := post("/session", M{}).ID
	post("/session/"+session+"/prompt_async", M{"parts": []M{{"type": "text", "text": "task:main"}}})
	question, toast, last := "", "", ""
	for lines := bufio.NewScanner(events.Body); last != "session.idle" && lines.Scan(); {
		var e struct {
			Type       string
			Properties struct{ ID, Message string }
		}
		text, data := strings.CutPrefix(lines.Text(), "data: ")
		if !data || json.Unmarshal([]byte(text), &e) != nil {
			continue
		}
		switch last = e.Type; e.Type {
		case "permission.asked":
			question = e.Properties.ID
		case "tui.toast.show":
			if toast = e.Properties.Message; question != "" {
				post("/permission/"+question+"/reply", M{"reply": "reject"})
			}
		}
	}
	for _, want := range []string{"throw-away copy of " + h.work, "network none", "It changed 2 paths", "dirty", "made"} {
		if !strings.Contains(toast, want) {
			t.Errorf("the person reads no %q:\n%s", want, toast)
		}
	}
	if got := h.real("made"); !strings.Contains(got, "no such file") || h.real("dirty") != "uncommitted\n" {
		t.Errorf("the person rejected it, and the real files are %q and %q", got, h.real("dirty"))
	}
	if names := h.sandboxes(); len(names) > 0 {
		t.Errorf("sandboxes are left: %v", names)
	}
}
