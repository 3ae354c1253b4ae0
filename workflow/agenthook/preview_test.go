package agenthook

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
)

// TestACommandIsUnwrappedAsItWasWrapped: whatever it contains; and a line that snapfs did not write is the agent's own.
func TestACommandIsUnwrappedAsItWasWrapped(t *testing.T) {
	h := &Handler{Program: []string{"/opt/my tools/snapfs", "--state", "/s"}}
	l := &Lease{Sandbox: "one", Workspace: "/w", View: "/run/v"}
	ev := &event{Tool: "Bash", Dir: "/run/v/a b"}
	for _, command := range []string{"", "true", "'", "''", `'\''`, `echo it\'s "$x" 'y'`, "a\nb", "'a'", `\`, "x'"} {
		text, err := json.Marshal(command)
		if err != nil {
			t.Fatal(err)
		}
		input := map[string]json.RawMessage{"command": text}
		if ev.Input, err = json.Marshal(input); err != nil {
			t.Fatal(err)
		}
		if err := h.wrap(input, ev, l); err != nil {
			t.Fatal(err)
		}
		if ev.Input, err = json.Marshal(input); err != nil {
			t.Fatal(err)
		}
		if got, err := h.ownCommand(ev, l); err != nil || got != command {
			t.Errorf("%q became %q, %v", command, got, err)
		}
	}
	if got, err := h.unwrap("snapfs ls", ev, l); err != nil || got != "snapfs ls" {
		t.Errorf("the agent's own command became %q, %v", got, err)
	}
	if got, err := h.unwrap(h.wrapper(ev, l)+"true; rm x", ev, l); err == nil {
		t.Errorf("a line with more in it became %q", got)
	}
}

// TestAPreviewIsShownWithTheNextQuestion: before the call, of the same command in the same session and directory, until
// it is too old. The question itself is then the person's, once.
func TestAPreviewIsShownWithTheNextQuestion(t *testing.T) {
	h := &Handler{Agent: "claude", State: t.TempDir(), Open: func(context.Context) (*engine.Engine, error) { return nil, errors.New("no engine") }}
	text := func(session, dir, tool, command string) []byte {
		data, err := json.Marshal(map[string]any{"session_id": session, "cwd": dir, "tool_name": tool, "tool_input": map[string]string{"command": command}})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	same := text("s", "/w", "Bash", "rm x")
	store := func() string {
		path := h.previewPath(&event{Session: "s", Dir: "/w"}, "rm x")
		if err := writePreview(path, "D  file  x"); err != nil {
			t.Fatal(err)
		}
		return path
	}
	store()
	for _, c := range []struct {
		data []byte
		asks bool
	}{
		{same, true},
		{same, true},
		{text("t", "/w", "Bash", "rm x"), false},
		{text("s", "/v", "Bash", "rm x"), false},
		{text("s", "/w", "Bash", "rm y"), false},
		{text("s", "/w", "Write", "rm x"), false},
	} {
		out, err := h.Handle(t.Context(), "PreToolUse", c.data)
		asks := strings.Contains(string(out), `"permissionDecision":"ask","permissionDecisionReason":"D  file  x"`)
		if err != nil || asks != c.asks || !asks && len(out) > 0 {
			t.Errorf("%s: %s, %v", c.data, out, err)
		}
	}
	if out, err := h.Handle(t.Context(), "PermissionRequest", same); err != nil || len(out) > 0 {
		t.Errorf("the question is not the person's: %s, %v", out, err)
	}
	if out, err := h.Handle(t.Context(), "PermissionRequest", same); err == nil || len(out) > 0 {
		t.Errorf("without an engine there is a second preview: %s, %v", out, err)
	}
	path := store()
	old := time.Now().Add(-previewAge - time.Minute)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if out, err := h.Handle(t.Context(), "PreToolUse", same); err != nil || len(out) > 0 {
		t.Errorf("an old preview is shown: %s, %v", out, err)
	}
	if err := writePreview(filepath.Join(filepath.Dir(path), "other"), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old preview stays: %v", err)
	}
}

// TestNoPreviewNeedsNoEngine: of another tool, and in an agent that runs in a sandbox itself.
func TestNoPreviewNeedsNoEngine(t *testing.T) {
	h := &Handler{Agent: "claude", State: t.TempDir(), Open: func(context.Context) (*engine.Engine, error) {
		t.Error("the engine was opened")
		return nil, errors.New("no engine")
	}}
	try := func(tool string) {
		t.Helper()
		out, err := h.Handle(t.Context(), "PermissionRequest", []byte(`{"session_id":"s","cwd":"/","tool_name":"`+tool+`","tool_input":{"command":"x"}}`))
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %s, %v", tool, out, err)
		}
	}
	try("Write")
	t.Setenv("SNAPFS_SANDBOX", "one")
	try("Bash")
}
