package agentrun

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// prepared returns a session of an agent whose program and home directory the test makes. files are those of the
// home directory.
func prepared(t *testing.T, agent string, files map[string]string) *Session {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "snapfs-test-") // a program in /tmp is not seen in a sandbox
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) }) // nothing else is there
	home, bin := filepath.Join(base, "home"), filepath.Join(base, "bin")
	if err := errors.Join(os.Mkdir(home, 0o755), os.Mkdir(bin, 0o755), os.WriteFile(bin+"/"+agent, []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("PATH", bin)
	for _, k := range kits() {
		t.Setenv(k.variable, "")
		for _, one := range k.keys {
			t.Setenv(one.base, "")
			if one.variable != "" {
				t.Setenv(one.variable, "")
			}
		}
	}
	s, err := Prepare(agent, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// all returns the copied settings as one text.
func all(t *testing.T, s *Session) string {
	t.Helper()
	files, err := s.settings()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range files {
		text.WriteString("== " + f.name + "\n" + string(f.data) + "\n")
	}
	return text.String()
}

func TestSettingsAreCopiedWithoutCredentials(t *testing.T) {
	for agent, files := range map[string]map[string]string{
		"claude": {
			".claude/settings.json": `{"theme": "stays", "env": {"A": "stays", "MY_TOKEN": "hush", "U": "https://u:hush@h/"}, "apiKeyHelper": "echo hush",
				"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "stays"}]}]}, "mcp": {"headers": {"X": "hush"}, "args": ["--api-key", "hush", "stays", "--token=hush"]}}`,
			".claude/CLAUDE.md": "stays", ".claude/agents/a.md": "stays", ".claude/skills/x/.env": "hush", ".claude/.credentials.json": "hush", ".claude/history.jsonl": "hush",
			".claude/commands/node_modules/x.js": "hush", ".claude.json": `{"theme": "stays", "oauthAccount": "hush", "projects": {"hush": {}}}`,
		},
		"codex": {
			".codex/config.toml": "model = \"stays\"\n[mcp_servers.x]\ncommand = \"stays\"\nbearer_token = \"hush\"\n[mcp_servers.x.env]\nAPI_KEY = \"hush\"\nLEVEL = \"stays\"\n",
			".codex/auth.json":   `{"OPENAI_API_KEY": "hush"}`, ".codex/sessions/x.jsonl": "hush", ".codex/prompts/p.md": "stays",
		},
		"opencode": {
			".config/opencode/opencode.jsonc": `{ // a comment
				"model": "stays", "provider": {"a": {"options": {"apiKey": "hush", "baseURL": "stays"}}, "b": {"options": {"apiKey": "{env:STAYS}"}}},}`,
			".config/opencode/agent/x.md": "stays", ".local/share/opencode/auth.json": "hush",
		},
	} {
		t.Run(agent, func(t *testing.T) {
			text := all(t, prepared(t, agent, files))
			if strings.Contains(text, "hush") || !strings.Contains(text, "stays") {
				t.Errorf("%s", text)
			}
			if agent == "opencode" && !strings.Contains(text, "{env:STAYS}") {
				t.Errorf("a reference is lost: %s", text)
			}
			if agent == "codex" && !strings.Contains(text, "danger-full-access") {
				t.Errorf("it would use its own sandbox: %s", text)
			}
		})
	}
}

func TestAFileWithTheKeyIsNotCopied(t *testing.T) {
	s := prepared(t, "claude", map[string]string{".claude/CLAUDE.md": "the key is value-of-the-key", ".claude/agents/bad.json": "{"})
	t.Setenv("ANTHROPIC_API_KEY", "value-of-the-key")
	if err := s.Confine(&catalog.Policy{Network: "allow:api.anthropic.com:443"}, "/w"); err != nil {
		t.Fatal(err)
	}
	if text := all(t, s); strings.Contains(text, "CLAUDE.md") || strings.Contains(text, "bad.json") {
		t.Errorf("%s", text)
	}
	if notices := strings.Join(s.Notices, "\n"); !strings.Contains(notices, "CLAUDE.md: it holds the key") || !strings.Contains(notices, "bad.json: it cannot be searched for credentials: not JSON") {
		t.Errorf("%q", s.Notices)
	}
}

func TestThePolicyShowsNothingOfTheAgent(t *testing.T) {
	s := prepared(t, "claude", map[string]string{".claude/.credentials.json": `{"claudeAiOauth":{"accessToken":"sk-ant-oat01-x","expiresAt":99999999999999}}`})
	home := s.home
	p := catalog.Policy{
		Network: "allow:api.anthropic.com:443", Expose: []string{home + "/.claude", home + "/.claude.json", home + "/.npmrc"}, Env: []string{"ANTHROPIC_API_KEY", "OTHER"},
		Profile: &catalog.ProfileUse{Path: "agent-claude", Taken: []string{"expose " + home + "/.claude", "env OTHER"}},
		Budget:  &catalog.Budget{Tokens: 10},
	}
	given := p
	t.Setenv("ANTHROPIC_BASE_URL", "https://models.example.com/x")
	if err := s.Confine(&p, "/w"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Expose, []string{home + "/.npmrc"}) || slices.Contains(p.Env, "ANTHROPIC_API_KEY") || !slices.Contains(p.Env, "OTHER") || !slices.Equal(p.Profile.Taken, []string{"env OTHER"}) {
		t.Errorf("%+v", p)
	}
	if len(p.Secrets) != 1 || p.Secrets[0].Field != "claudeAiOauth.accessToken" || p.Secrets[0].As != "CLAUDE_CODE_OAUTH_TOKEN" || !slices.Equal(p.Secrets[0].Hosts, []string{"models.example.com:443"}) {
		t.Errorf("%+v", p.Secrets)
	}
	if p.Network != "allow:api.anthropic.com:443,models.example.com:443" || !slices.Equal(p.Budget.Hosts, []string{"models.example.com"}) {
		t.Errorf("%q, %+v", p.Network, p.Budget)
	}
	if len(given.Budget.Hosts) > 0 || len(given.Profile.Taken) != 2 {
		t.Errorf("the caller's values have changed: %+v", given)
	}
}

func TestEachKeyOfOpencodeIsBrokered(t *testing.T) {
	s := prepared(t, "opencode", map[string]string{".local/share/opencode/auth.json": `{"openai": {"key": "a"}, "anthropic": {"key": "b"}}`})
	t.Setenv("ANTHROPIC_API_KEY", "c")
	p := catalog.Policy{Network: "allow:x", Secrets: []catalog.Secret{{Name: "openai", As: "OPENAI_API_KEY", Command: []string{"pass"}}}}
	if err := s.Confine(&p, "/w"); err != nil {
		t.Fatal(err)
	}
	if len(p.Secrets) != 2 || p.Secrets[0].Command == nil || p.Secrets[1].Env != "ANTHROPIC_API_KEY" {
		t.Errorf("%+v", p.Secrets)
	}
}

func TestAProgramThatASandboxDoesNotSeeIsRefused(t *testing.T) {
	s := prepared(t, "claude", map[string]string{".claude/local/claude": "#!/bin/sh\n"})
	dir := s.home + "/.claude/local"
	if err := os.Chmod(dir+"/claude", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if _, err := Prepare("claude", nil); !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), "does not see the program") {
		t.Errorf("%v", err)
	}
}

func TestSettingsAreNotInTheWorkspace(t *testing.T) {
	s := prepared(t, "codex", nil)
	t.Setenv("OPENAI_API_KEY", "x")
	link := s.home + "-link"
	if err := os.Symlink(s.home, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ home, workspace, want string }{
		{s.home, "/w", s.home},
		{s.home, s.home, "/tmp"},
		{s.home, filepath.Dir(s.home), "/tmp"},
		{link, "/w", s.home},
		{link, s.home, "/tmp"},
		{s.home, link, "/tmp"},
		{s.home, s.home + "/project", s.home},
	} {
		t.Setenv("HOME", c.home)
		one, err := Prepare("codex", nil)
		if err == nil {
			err = one.Confine(&catalog.Policy{Network: "allow:x"}, c.workspace)
		}
		if err != nil || one.inside != c.want+"/.snapfs-agent/codex" || !one.Owns(c.want+"/.snapfs-agent/codex/x", false) || one.Owns(c.want+"/x", false) {
			t.Errorf("%+v: %v, %q", c, err, one.inside)
		}
	}
}

// TestSessionsAndSignInsOfOpencodeAreHidden: wherever its data and its state lie.
func TestSessionsAndSignInsOfOpencodeAreHidden(t *testing.T) {
	s := prepared(t, "opencode", map[string]string{".local/share/opencode/mcp-auth.json": "x", ".local/state/opencode/prompt-history.jsonl": "x", "data/opencode/x": "x", "data/other/x": "x"})
	t.Setenv("OPENAI_API_KEY", "x")
	t.Setenv("XDG_DATA_HOME", s.home+"/data")
	p := catalog.Policy{Network: "allow:x", Env: []string{"XDG_DATA_HOME"}}
	if err := s.Confine(&p, "/w"); err != nil {
		t.Fatal(err)
	}
	if want := []string{s.home + "/.local/share/opencode", s.home + "/.local/state/opencode", s.home + "/data/opencode"}; !slices.Equal(p.Hide, want) {
		t.Errorf("%q, not %q", p.Hide, want)
	}
	if slices.Contains(p.Env, "XDG_DATA_HOME") || !slices.Contains(p.Env, "XDG_DATA_HOME="+s.inside+"/XDG_DATA_HOME") || !slices.Contains(p.Env, "XDG_STATE_HOME="+s.inside+"/XDG_STATE_HOME") {
		t.Errorf("%q", p.Env)
	}
}

// TestDataOfOtherProgramsIsNotTheAgents: what a program stores where a variable for opencode leads it is a result.
func TestDataOfOtherProgramsIsNotTheAgents(t *testing.T) {
	s := prepared(t, "opencode", nil)
	t.Setenv("OPENAI_API_KEY", "x")
	if err := s.Confine(&catalog.Policy{Network: "allow:x"}, "/w"); err != nil {
		t.Fatal(err)
	}
	for path, own := range map[string]bool{
		"": true, "/opencode/opencode.json": true, "/gh": false, "/gh/hosts.yml": false, "/gh/opencode": false,
		"/XDG_DATA_HOME": true, "/XDG_DATA_HOME/opencode/storage/x": true, "/XDG_DATA_HOME/uv": false, "/XDG_DATA_HOME/uv/tools/x": false,
		"/../other": true, "/../../x": false,
	} {
		if path := filepath.Join(s.inside, path); s.Owns(path, false) != own {
			t.Errorf("%s: want %v", path, own)
		}
	}
	if !s.Owns(s.inside+"/XDG_STATE_HOME/nvim", true) || s.Owns(s.inside+"/XDG_STATE_HOME/nvim/link", true) {
		t.Error("a link to another program's real data is not told from one that a program made")
	}
}

// TestALinkedConfigurationIsHiddenAtItsTarget: the sandbox could remove the link and read what it led to.
func TestALinkedConfigurationIsHiddenAtItsTarget(t *testing.T) {
	s := prepared(t, "codex", map[string]string{"dotfiles/codex/config.toml": ""})
	t.Setenv("OPENAI_API_KEY", "x")
	if err := os.Symlink("dotfiles/codex", s.home+"/.codex"); err != nil {
		t.Fatal(err)
	}
	p := catalog.Policy{Network: "allow:x"}
	if err := s.Confine(&p, "/w"); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"/.codex", "/dotfiles/codex"} {
		if !slices.Contains(p.Hide, s.home+place) {
			t.Errorf("%s is not in %q", place, p.Hide)
		}
	}
}
