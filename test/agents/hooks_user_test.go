//go:build linux

package agents

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// hook sends an event to snapfs as an agent does, and returns the answer.
func (h *hooked) hook(event string, fields M, flags ...string) string {
	h.t.Helper()
	cmd := h.command(append(append([]string{"hook", "--agent", "claude"}, flags...), event)...)
	cmd.Stdin = strings.NewReader(jsonOf(h.t, fields))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		h.t.Fatalf("hook %s: %v\n%s%s", event, err, out, stderr.String())
	}
	return string(out)
}

// noShellOutside checks that no tool of Claude Code that runs commands does so outside of the sandbox whose view is the
// session's directory.
func (h *hooked) noShellOutside(session, view, sandbox string) {
	h.t.Helper()
	call := func(tool string, input M) M {
		return M{"session_id": session, "cwd": view, "tool_name": tool, "tool_input": input}
	}
	for _, tool := range []string{"Bash", "Monitor"} {
		if got := h.hook("PreToolUse", call(tool, M{"command": "tail -f log", "description": "x"})); !strings.Contains(got, " "+sandbox+" -- ") {
			h.t.Errorf("a command of %s runs outside: %s", tool, got)
		}
	}
	if got := h.hook("PreToolUse", call("Monitor", M{"ws": M{"url": "wss://site.example"}, "description": "x"})); got != "" {
		h.t.Errorf("a web socket of Monitor: %s", got)
	}
	cmd := h.command("hook", "--agent", "claude", "PreToolUse")
	cmd.Stdin = strings.NewReader(jsonOf(h.t, call("PowerShell", M{"command": "ls"})))
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "PowerShell would run outside") {
		h.t.Errorf("PowerShell: %v\n%s", err, out)
	}
}

// atOnce sends n ends of calls at once.
func (h *hooked) atOnce(view string, n int) {
	h.t.Helper()
	all := make([]*exec.Cmd, n)
	for i := range all {
		all[i] = h.command("hook", "--agent", "codex", "PostToolUse")
		all[i].Stdin = strings.NewReader(jsonOf(h.t, M{"session_id": "s", "cwd": view, "tool_name": "Bash", "tool_use_id": fmt.Sprint("parallel", i)}))
		all[i].Stderr = os.Stderr
		if err := all[i].Start(); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			h.t.Error(err)
		}
	}
}

// TestAViewOfAnOrdinaryUser: fusermount3 mounts it, and it does the same: both sides see each write, an undo is seen at
// once, and nothing is left. Cost: two seconds.
func TestAViewOfAnOrdinaryUser(t *testing.T) {
	treetest.OncePerRun(t)
	if os.Geteuid() == 0 {
		treetest.NeedProgram(t, "fusermount3")
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
		return
	}
	treetest.NeedProgram(t, "git")
	treetest.NeedDevice(t, "/dev/fuse")
	h := hookedDesk(t, "claude")
	view := strings.TrimSpace(h.hook("WorktreeCreate", M{"session_id": "s", "cwd": h.work, "name": "mine"}))
	h.noShellOutside("s", view, "mine")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(view+"/add.sh", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(want string) {
		t.Helper()
		got, err := os.ReadFile(view + "/add.sh")
		if err != nil || string(got) != want {
			t.Errorf("the view has %q, %v; want %q", got, err, want)
		}
		if got := h.must("exec", "mine", "--", "cat", "add.sh"); got != want {
			t.Errorf("the sandbox has %q, want %q", got, want)
		}
	}
	write("one\n")
	holds("one\n")
	h.hook("PostToolBatch", M{"session_id": "s", "cwd": view, "prompt_id": "p", "tool_calls": []M{{"tool_name": "Edit", "tool_use_id": "first"}}})
	h.must("exec", "mine", "--", "sh", "-c", "echo two > add.sh")
	holds("two\n")
	h.hook("PostToolBatch", M{"session_id": "s", "cwd": view, "prompt_id": "q", "tool_calls": []M{{"tool_name": "Bash", "tool_use_id": "second"}}})
	h.must("undo", "--turn", "mine")
	holds("one\n")
	h.atOnce(view, 4)
	if out := h.must("agent", "status", "--json"); !strings.Contains(out, `"checkpoints":6`) { // with two from before
		t.Errorf("after four calls at once: %s", out)
	}
	h.hook("SessionEnd", M{"session_id": "s", "cwd": view})
	h.unviewed()
	if out, err := exec.Command("ls", view).CombinedOutput(); err == nil {
		t.Errorf("the view's directory is left: %s", out)
	}
}

// TestTheHostsGitRunsNothingOfAClone: what a sandbox writes into its repository, the git of the host that runs in the
// view does not execute, with the usual backend and with fusecow. Package
// isolate/hostview/viewserver has the list of the ways to plant. Cost: two seconds.
func TestTheHostsGitRunsNothingOfAClone(t *testing.T) {
	treetest.OncePerRun(t)
	treetest.NeedProgram(t, "git")
	treetest.NeedDevice(t, "/dev/fuse")
	h := hookedDesk(t, "claude")
	for backend, flags := range map[string][]string{"usual": nil, "fusecow": {"--backend", "fusecow"}} {
		view := strings.TrimSpace(h.hook("WorktreeCreate", M{"session_id": backend, "cwd": h.work, "name": backend}, flags...))
		canary := treetest.Dir(t) + "/canary"
		h.must("exec", backend, "--", "sh", "-c", `git config core.fsmonitor "touch $0;true"
			printf '#!/bin/sh\ntouch %s\n' "$0" > .git/hooks/post-index-change; cp .git/hooks/post-index-change s
			chmod +x .git/hooks/post-index-change s; touch -d yesterday add.sh`, canary)
		out, err := exec.Command("git", "-C", view, "status", "--short").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "?? s\n") {
			t.Errorf("%s: git status: %v\n%s", backend, err, out)
		}
		if out, err := exec.Command(view + "/s").CombinedOutput(); err == nil {
			t.Errorf("%s: a program of the sandbox runs: %s", backend, out)
		}
		if _, err := os.Stat(canary); err == nil {
			t.Errorf("%s: a planted command ran", backend)
		}
		if out, _ := exec.Command("git", "-C", h.work, "config", "core.fsmonitor").Output(); len(out) > 0 {
			t.Errorf("%s: the real repository has %s", backend, out)
		}
		h.hook("SessionEnd", M{"session_id": backend, "cwd": view})
	}
	h.unviewed()
	if os.Geteuid() == 0 {
		treetest.NeedProgram(t, "fusermount3")
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
	}
}
