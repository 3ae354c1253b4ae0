//go:build linux

package agents

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A hooked is a desk with a git repository, and a home directory in whose configuration of an agent snapfs is
// installed.
type hooked struct {
	*desk
	home string
}

// hookedDesk makes the workspace of a hooks test: a file of a commit, an uncommitted one, and one that git ignores.
func hookedDesk(t *testing.T, agent string, flags ...string) *hooked {
	t.Helper()
	treetest.NeedProgram(t, "git")
	h := &hooked{newDesk(t), treetest.Dir(t)}
	h.write(".gitignore", "dep\n")
	h.git("init", "-q")
	h.git("add", ".")
	h.git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "x")
	h.write("dirty", "uncommitted\n")
	h.write("dep", "ignored\n")
	cmd := h.command(append([]string{"agent", "install", agent, "--yes"}, flags...)...)
	cmd.Env = append(cmd.Env, h.environment()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("agent install: %v\n%s", err, out)
	}
	return h
}

func (h *hooked) environment() []string {
	return []string{"HOME=" + h.home, "CODEX_HOME=" + h.home + "/.codex", "CLAUDE_CONFIG_DIR=" + h.home + "/.claude", "XDG_CONFIG_HOME=" + h.home + "/.config"}
}

func (h *hooked) git(args ...string) {
	h.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = h.work
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// run runs an agent to its end, in a clean environment, and returns its standard output.
func (h *hooked) run(env []string, name string, args ...string) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = h.work, time.Second
	cmd.Env = append([]string{"PATH=" + filepath.Dir(name) + ":" + os.Getenv("PATH"), "TERM=dumb", "LANG=C.UTF-8"}, append(h.environment(), env...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("%s: %v\n%s\n%s", filepath.Base(name), err, stderr.String(), out)
	}
	return string(out)
}

// claude runs Claude Code with a scripted model, and permissions as a person has them by default.
func (h *hooked) claude(bin string, s *script, args ...string) string {
	h.t.Helper()
	return h.run([]string{
		"IS_SANDBOX=1", "ANTHROPIC_BASE_URL=" + s.URL, "ANTHROPIC_API_KEY=sk-x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
	}, bin+"/claude", append([]string{"-p", "task:main", "--strict-mcp-config"}, args...)...)
}

// sandboxes returns the names of the sandboxes.
func (h *hooked) sandboxes() (names []string) {
	h.t.Helper()
	out, err := h.snapfs("ls", "-q")
	if err != nil {
		h.t.Fatalf("ls: %v\n%s", err, out)
	}
	return strings.Fields(out)
}

// must runs a command of snapfs that must succeed, and returns its standard output.
func (h *hooked) must(args ...string) string {
	h.t.Helper()
	cmd := h.command(args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("snapfs %v: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}

// unviewed fails the test if a view is still mounted.
func (h *hooked) unviewed() {
	h.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "snapfs-view") {
			h.t.Errorf("a view is left: %s", line)
		}
	}
}

// unviewedSoon waits until no view is mounted: the process of one notices the end of its agent by itself.
func (h *hooked) unviewedSoon() {
	h.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && !strings.Contains(string(mounts), "snapfs-view") {
			return
		}
	}
	h.unviewed()
}

// path returns the directory that a shell printed in the first result, and a file in it.
func path(results []string, file string) string {
	var text string
	if json.Unmarshal([]byte(results[0]), &text) != nil {
		text = results[0]
	}
	dir, _, _ := strings.Cut(text, "\n")
	return filepath.Join(strings.TrimSpace(dir), file)
}

// subagent returns the turns of a subagent that works in its clone by its shell and by its editor.
func subagent(name string) []turn {
	return []turn{
		calls(toolCall{"Bash", M{"command": "pwd; cat dirty dep; echo by-shell > " + name + ".shell", "description": "x"}}),
		func(r []string) []toolCall {
			return []toolCall{{"Write", M{"file_path": path(r, name+".editor"), "content": name + " by its editor\n"}}}
		},
		func(r []string) []toolCall { return []toolCall{{"Read", M{"file_path": path(r, name+".shell")}}} },
		calls(toolCall{"Bash", M{"command": "cat " + name + ".editor; ls", "description": "x"}}),
	}
}

// TestSubagentsOfClaudeCodeWorkInClones: three at once, each in a clone of the whole environment; none sees another's
// files, nothing is real before the person promotes, and then all of it is. Cost: twenty seconds beside the
// installation.
func TestSubagentsOfClaudeCodeWorkInClones(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "@anthropic-ai/claude-code@2.1.331")
	h := hookedDesk(t, "claude")
	var agents []toolCall
	tasks := map[string][]turn{}
	for _, name := range []string{"one", "two", "three"} {
		agents = append(agents, toolCall{"Agent", M{"description": name, "prompt": "task:" + name, "isolation": "worktree", "subagent_type": "general-purpose", "run_in_background": false}})
		tasks[name] = subagent(name)
	}
	tasks["main"] = []turn{calls(agents...)}
	s := newScript(t, tasks)
	out := h.claude(bin, s)
	t.Logf("claude: %s", out)
	for _, name := range []string{"one", "two", "three"} {
		r := strings.Join(s.results[name], "\n")
		for _, want := range []string{"uncommitted", "ignored", "by-shell", name + " by its editor"} {
			if !strings.Contains(r, want) {
				t.Errorf("%s has no %q in its results:\n%s", name, want, r)
			}
		}
		for _, other := range []string{"one", "two", "three"} {
			if other != name && strings.Contains(r, other+".shell") {
				t.Errorf("%s sees files of %s:\n%s", name, other, r)
			}
		}
		if got := h.real(name + ".shell"); !strings.Contains(got, "no such file") {
			t.Errorf("before the promotion %s.shell is %q", name, got)
		}
	}
	if !strings.Contains(s.last["main"], "snapfs promote agent-") {
		t.Errorf("the model did not read where the results are:\n%s", strings.Join(s.results["main"], "\n"))
	}
	h.unviewed()
	names := h.sandboxes()
	if len(names) != 3 {
		t.Fatalf("sandboxes: %v", names)
	}
	for _, name := range names {
		h.must("promote", name)
	}
	for _, name := range []string{"one", "two", "three"} {
		if h.real(name+".shell") != "by-shell\n" || h.real(name+".editor") != name+" by its editor\n" {
			t.Errorf("after the promotions: %q and %q", h.real(name+".shell"), h.real(name+".editor"))
		}
	}
}

// TestAnEditOfClaudeCodeIsUndoneWhileItWorks: in a session in a clone, a person takes the last call of the shell back,
// and the agent's own Read shows the earlier content. Cost: five seconds beside the installation.
func TestAnEditOfClaudeCodeIsUndoneWhileItWorks(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	bin := npm(t, "@anthropic-ai/claude-code@2.1.331")
	h := hookedDesk(t, "claude")
	undone := false
	s := newScript(t, map[string][]turn{"main": {
		calls(toolCall{"Bash", M{"command": "pwd; echo good > add.sh", "description": "x"}}),
		calls(toolCall{"Bash", M{"command": "echo bad > add.sh; rm test.sh; touch junk", "description": "x"}}),
		func(r []string) []toolCall {
			if !undone { // the conversation is read again for each request
				undone = true
				h.must("rollback", "--call", "feature")
			}
			return []toolCall{{"Read", M{"file_path": path(r, "add.sh")}}}
		},
		calls(toolCall{"Bash", M{"command": "cat add.sh test.sh; ls; echo more >> add.sh", "description": "x"}}),
	}})
	h.claude(bin, s, "--worktree", "feature")
	r := s.results["main"]
	if len(r) != 4 || !strings.Contains(r[2], "good") || strings.Contains(r[3], "junk") || !strings.Contains(r[3], "sh add.sh 2 3") {
		t.Errorf("results:\n%s", strings.Join(r, "\n"))
	}
	if got := h.real("add.sh"); !strings.Contains(got, "-") {
		t.Errorf("the real file is %q", got)
	}
	h.unviewed()
	h.must("undo", "--turn")
	if out := h.must("diff", "feature"); strings.Contains(out, "add.sh") {
		t.Errorf("after the turn was undone: %s", out)
	}
	if !slices.Contains(h.sandboxes(), "feature") {
		t.Error("the sandbox is gone")
	}
}
