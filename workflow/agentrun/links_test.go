package agentrun

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestALinkBringsNoFileOfElsewhereIntoTheSettings: the person sees which links are not copied.
func TestALinkBringsNoFileOfElsewhereIntoTheSettings(t *testing.T) {
	s := prepared(t, "codex", map[string]string{
		".aws/credentials": "hush", ".aws/more/x.md": "hush", ".codex/auth.json": `{"OPENAI_API_KEY": "hush"}`, ".codex/sessions/s.jsonl": "hush",
		".codex/skills/x/SKILL.md": "stays", ".codex/skills/x/key.pem": "hush", ".codex/skills/x/settings.json": `{"password": "hush"}`,
	})
	for name, target := range map[string]string{
		"skills/x/reference.md": "../../../.aws/credentials", // relative
		"skills/x/absolute.md":  filepath.Join(s.home, ".aws/credentials"),
		"AGENTS.md":             "../.aws/credentials", // an entry at the top
		"prompts":               "../.aws/more",        // a whole directory
		"rules":                 "../.aws/credentials",
		"skills/x/sign-in.md":   "../../auth.json", // inside the configuration, and no setting
		"skills/x/session.md":   "../../sessions/s.jsonl",
		"skills/x/pem.md":       "key.pem", // a name that is not copied
		"skills/x/json.md":      "settings.json",
		"skills/x/twice.md":     "absolute.md",
		"skills/x/same.md":      "SKILL.md",
	} {
		if err := os.Symlink(target, filepath.Join(s.config, name)); err != nil {
			t.Fatal(err)
		}
	}
	text := all(t, s)
	if strings.Contains(text, "hush") || !strings.Contains(text, "== skills/x/same.md\nstays") {
		t.Errorf("%s", text)
	}
	notices := strings.Join(s.Notices, "\n")
	for _, name := range []string{"reference.md", "absolute.md", "AGENTS.md", "prompts", "rules", "sign-in.md", "session.md", "pem.md", "twice.md"} {
		if !strings.Contains(notices, name+": ") {
			t.Errorf("no notice of %s in %q", name, s.Notices)
		}
	}
}

// TestSettingsBehindALinkOfTheirDirectoryAreCopied: the configuration may lie elsewhere as a whole.
func TestSettingsBehindALinkOfTheirDirectoryAreCopied(t *testing.T) {
	s := prepared(t, "codex", map[string]string{"elsewhere/AGENTS.md": "stays"})
	if err := os.Symlink("elsewhere", s.config); err != nil {
		t.Fatal(err)
	}
	if text := all(t, s); !strings.Contains(text, "stays") {
		t.Errorf("%s %q", text, s.Notices)
	}
}

// TestAFileWhoseHooksCannotBeRemovedIsNotCopied: such a hook would fail at each event in a sandbox.
func TestAFileWhoseHooksCannotBeRemovedIsNotCopied(t *testing.T) {
	s := prepared(t, "claude", map[string]string{".claude/settings.json": `["what is this"]`, ".claude/CLAUDE.md": "stays"})
	text := all(t, s)
	if strings.Contains(text, "what is this") || !strings.Contains(text, "stays") || !strings.Contains(strings.Join(s.Notices, "\n"), "settings.json: the hooks of snapfs cannot be removed") {
		t.Errorf("%s %q", text, s.Notices)
	}
	gone := filepath.Join(s.config, "CLAUDE.md")
	if err := errors.Join(os.Remove(gone), os.Symlink("nothing", gone)); err != nil {
		t.Fatal(err)
	}
	if text := all(t, s); strings.Contains(text, "CLAUDE.md") {
		t.Errorf("a link to nothing: %s", text)
	}
}
