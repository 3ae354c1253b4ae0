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
func (h *hooked) hook(event string, fields M) string {
	h.t.Helper()
	cmd := h.command("hook", "--agent", "claude", event)
	cmd.Stdin = strings.NewReader(jsonOf(h.t, fields))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		h.t.Fatalf("hook %s: %v\n%s%s", event, err, out, stderr.String())
	}
	return string(out)
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
