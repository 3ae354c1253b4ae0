package agentsetup

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// samples are configurations as people have them, by agent.
var samples = map[string][]string{
	"claude": {
		"{\n  \"$schema\": \"https://json.example.org/settings.json\",\n  \"permissions\": {\n    \"allow\": [\"Bash(npm test)\"],\n    \"deny\": []\n  },\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\n        \"matcher\": \"Bash\",\n        \"hooks\": [{\"type\": \"command\", \"command\": \"my-snapfs-wrapper hook --agent x\"}]\n      }\n    ]\n  },\n  \"futureKey\": {\"x\": [1, 2]}\n}\n",
		"{\n\t// the model\n\t\"model\": \"opus\", /* until May */\n}\n",
		"{}",
	},
	"codex": {
		"{\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"notify\"}]}]}}\n",
	},
}

// TestInstallAndUninstallGiveTheSameBytes: of every sample, with a file of its own or none; twice installed is once
// installed; other flags replace the earlier ones.
func TestInstallAndUninstallGiveTheSameBytes(t *testing.T) {
	for _, agent := range Agents {
		for _, text := range append(samples[agent], "") {
			dir := t.TempDir()
			s := Setup{Agent: agent, Project: dir, Program: []string{"/opt/my tools/snapfs", "--state", "/s"}, Flags: []string{"--net", "none"}}
			path, err := s.Path()
			if err != nil {
				t.Fatal(err)
			}
			if text != "" {
				put(t, path, text)
			}
			first := apply(t, s.Install)
			if !strings.Contains(first, "snapfs") || !strings.Contains(first, "hook") {
				t.Errorf("%s: installed %q", agent, first)
			}
			if e, err := s.Install(); err != nil || !e.Empty() {
				t.Errorf("%s: the second installation changes %q to %q, %v", agent, e.Before, e.After, err)
			}
			if on, err := s.Installed(); err != nil || !on {
				t.Errorf("%s: not installed, %v", agent, err)
			}
			s.Flags = []string{"--all"}
			if other := apply(t, s.Install); strings.Contains(other, "--net") || strings.Count(other, "--all") != strings.Count(first, "--net") {
				t.Errorf("%s: with other flags: %q", agent, other)
			}
			if last := apply(t, s.Uninstall); last != text {
				t.Errorf("%s: %q became %q", agent, text, last)
			}
			if on, err := s.Installed(); err != nil || on {
				t.Errorf("%s: installed after all, %v", agent, err)
			}
			if _, err := os.Stat(path); text == "" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: the file is left: %v", agent, err)
			}
		}
	}
}

// TestThePreviewComesAndGoesWithItsFlag: an installation without it removes it, and an uninstallation needs no flag.
func TestThePreviewComesAndGoesWithItsFlag(t *testing.T) {
	for _, agent := range Agents {
		t.Run(agent, func(t *testing.T) { previewComesAndGoes(t, agent) })
	}
}

func previewComesAndGoes(t *testing.T, agent string) {
	s := Setup{Agent: agent, Project: t.TempDir(), Program: []string{"/opt/snapfs"}}
	const hook = `PermissionRequest`
	plain := apply(t, s.Install)
	s.Preview = true
	if text := apply(t, s.Install); strings.Contains(plain, hook) || !strings.Contains(text, hook) {
		t.Errorf("with a preview %s, without %s", text, plain)
	}
	s.Preview = false
	if text := apply(t, s.Install); text != plain {
		t.Errorf("the preview left %s, want %s", text, plain)
	}
	s.Preview = true
	apply(t, s.Install)
	s.Preview = false
	if text := apply(t, s.Uninstall); text != "" {
		t.Errorf("the uninstallation left %s", text)
	}
}

// TestAnEditDoesNotOverwriteAnother: a file that has changed since it was shown stays.
func TestAnEditDoesNotOverwriteAnother(t *testing.T) {
	s := Setup{Agent: "claude", Project: t.TempDir(), Program: []string{"snapfs"}}
	e, err := s.Install()
	if err != nil {
		t.Fatal(err)
	}
	put(t, e.Path, "{}\n")
	if err := e.Write(); err == nil {
		t.Error("it was overwritten")
	}
	if text, err := os.ReadFile(e.Path); err != nil || string(text) != "{}\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestAConfigurationThatIsNoneStays: the person mends it first.
func TestAConfigurationThatIsNoneStays(t *testing.T) {
	s := Setup{Agent: "claude", Project: t.TempDir(), Program: []string{"snapfs"}}
	for _, text := range []string{"{", "[]", `{"hooks": true}`, `{"hooks": {"PreToolUse": "x"}}`} {
		path, err := s.Path()
		if err != nil {
			t.Fatal(err)
		}
		put(t, path, text)
		if _, err := s.Install(); err == nil {
			t.Errorf("%q was edited", text)
		}
	}
}

// TestTrustIsThatOfTheWorstHook: of snapfs's hooks in this file, and no others.
func TestTrustIsThatOfTheWorstHook(t *testing.T) {
	type hook struct {
		Command     string `json:"command"`
		SourcePath  string `json:"sourcePath"`
		TrustStatus string `json:"trustStatus"`
	}
	for _, c := range []struct {
		hooks []hook
		want  Trust
	}{
		{nil, Unknown},
		{[]hook{{"notify", "/h", "trusted"}, {"snapfs hook", "/other", "trusted"}}, Unknown},
		{[]hook{{"snapfs hook", "/h", "trusted"}, {"snapfs hook", "/h", "managed"}, {"notify", "/h", "untrusted"}}, Trusted},
		{[]hook{{"snapfs hook", "/h", "trusted"}, {"snapfs hook", "/h", "untrusted"}}, Untrusted},
		{[]hook{{"snapfs hook", "/h", "untrusted"}, {"snapfs hook", "/h", "trusted"}}, Untrusted},
		{[]hook{{"snapfs hook", "/h", "modified"}, {"snapfs hook", "/h", "trusted"}}, Modified},
	} {
		text, err := json.Marshal(map[string]any{"id": 2, "result": map[string]any{"data": []any{map[string]any{"hooks": c.hooks}}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := trustIn(text, "/h"); got != c.want {
			t.Errorf("%v: %s, want %s", c.hooks, got, c.want)
		}
	}
}

// TestThePluginOfOpencodeBlocksWhatNoHookAllowed: a call goes on only after a hook that ended well, and with its input. Cost:
// one start of node and of a shell for each answer, a tenth of a second.
func TestThePluginOfOpencodeBlocksWhatNoHookAllowed(t *testing.T) {
	treetest.NeedProgram(t, "node")
	dir := t.TempDir()
	s := Setup{Agent: "opencode", Program: []string{"/bin/sh", "-c", `cat >/dev/null; eval "$SCRIPT"`}}
	text, err := s.plugin()
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/plugin.mjs", string(text))
	scripts := []struct{ script, before, after string }{
		{"exit 0", "real", "done"},
		{`echo '{"hookSpecificOutput":{"updatedInput":{"path":"view"},"additionalContext":"drift"}}'`, "view", "done\ndrift"},
		{"exit 1", "blocked", "done"},
		{"echo no >&2; exit 2", "blocked", "blocked"},
		{"kill -9 $$", "blocked", "done"},
		{"echo nonsense", "blocked", "done"},
		{`echo '{"hookSpecificOutput":{"updatedInput"'`, "blocked", "done"},
		{"echo null", "blocked", "done"},
		{"echo {}", "blocked", "done"},
	}
	put(t, dir+"/main.mjs", `
import { Snapfs } from "./plugin.mjs"
const hooks = await Snapfs({ directory: "/w" })
const result = []
for (const script of process.argv.slice(2)) {
  process.env.SCRIPT = script
  const args = { path: "real" }, output = { output: "done" }
  const before = await hooks["tool.execute.before"]({ tool: "write", sessionID: "s", callID: "c" }, { args }).then(() => args.path, () => "blocked")
  const after = await hooks["tool.execute.after"]({ tool: "write", sessionID: "s", callID: "c" }, output).then(() => output.output, () => "blocked")
  result.push({ before, after })
}
console.log(JSON.stringify(result))
`)
	args := []string{"main.mjs"}
	for _, c := range scripts {
		args = append(args, c.script)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var got []struct{ Before, After string }
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || len(got) != len(scripts) {
		t.Fatalf("%v, %s", err, out)
	}
	for i, c := range scripts {
		if got[i].Before != c.before || got[i].After != c.after {
			t.Errorf("%s: %+v, want %q and %q", c.script, got[i], c.before, c.after)
		}
	}
}

// TestThePluginOfOpencodeShowsEffectsBesideAnOpenQuestion: of the shell's commands alone, and not once the person has
// answered. The script stands for snapfs, and waits for the file answered. Cost: a start of node and three of a shell.
func TestThePluginOfOpencodeShowsEffectsBesideAnOpenQuestion(t *testing.T) {
	treetest.NeedProgram(t, "node")
	dir := t.TempDir()
	s := Setup{Agent: "opencode", Preview: true, Program: []string{"/bin/sh", "-c", `
event=$(cat)
case $event in
*PermissionRequest*late*) until test -e answered; do sleep 0.01; done ;;
*PermissionRequest*fails*) echo no preview >&2; exit 0 ;;
esac
case $event in
*PermissionRequest*) printf '{"systemMessage":"effects of %s"}' "$(printf %s "$event" | sed 's/.*"command":"//; s/".*//')" ;;
*) printf '{"hookSpecificOutput":{"updatedInput":{"command":"wrapped"}}}' ;;
esac`}}
	text, err := s.plugin()
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/plugin.mjs", string(text))
	put(t, dir+"/main.mjs", `
import { writeFileSync } from "node:fs"
import { Snapfs } from "./plugin.mjs"
const shown = []
const client = { tui: { showToast: async ({ body }) => { shown.push(body.message.trim()) } } }
const hooks = await Snapfs({ client, directory: "/w" })
const begin = (tool, callID, command) => hooks["tool.execute.before"]({ tool, sessionID: "s", callID }, { args: { command } })
const ask = (id, permission, callID) => hooks.event({ event: { type: "permission.asked", properties: { id, sessionID: "s", permission, tool: { callID } } } })
await begin("bash", "c1", "date")
await ask("p1", "bash", "c1")
await begin("write", "c2", "")
await ask("p2", "edit", "c2")
await ask("p3", "bash", "unknown")
await begin("bash", "c4", "fails")
await ask("p4", "bash", "c4")
await begin("bash", "c5", "late")
const late = ask("p5", "bash", "c5")
await hooks.event({ event: { type: "permission.replied", properties: { requestID: "p5" } } })
writeFileSync("answered", "")
await late
console.log(JSON.stringify(shown))
`)
	cmd := exec.CommandContext(t.Context(), "node", "main.mjs")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if want := `["effects of date","no preview"]`; err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("%v, %s, want %s", err, out, want)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// apply carries out an edit and returns the content of the file, "" if there is none.
func apply(t *testing.T, edit func() (Edit, error)) string {
	t.Helper()
	e, err := edit()
	if err == nil {
		err = e.Write()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(e.After)
}

// TestAProfileMayRefuseAnyTool: with a profile the agent calls the hook before each tool.
func TestAProfileMayRefuseAnyTool(t *testing.T) {
	for flags, matcher := range map[string]string{"": "Bash|Monitor|PowerShell|Read|", "--profile": "", "--profile=x": ""} {
		s := Setup{Agent: "claude", Flags: strings.Fields(flags)}
		for _, h := range s.hooks() {
			if h.event == "PreToolUse" && ((h.matcher == "") != (matcher == "") || !strings.HasPrefix(h.matcher, matcher)) {
				t.Errorf("%q: the matcher is %q", flags, h.matcher)
			}
		}
	}
}
