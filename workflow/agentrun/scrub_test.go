package agentrun

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// scrubbed returns a text in TOML without what may be a credential, and what was left out as a whole.
func scrubbed(t *testing.T, text string) (string, []string) {
	t.Helper()
	value := map[string]any{}
	if err := toml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	var c scrubber
	clean, _ := c.scrub("", value)
	return fmt.Sprint(clean), c.left
}

func TestACredentialOfAnyFormIsLeftOut(t *testing.T) {
	for _, text := range []string{
		`args = ["--header", "Authorization: Bearer hush"]`, `args = ["--header", "X-Custom: hush"]`, `args = ["-H", "hush"]`, `args = ["x", "--api-key=hush"]`,
		`args = ["-k", "hush"]`, `args = ["--key", "hush"]`, `args = ["--key=hush"]`, `args = ["--token", 12345, "hush"]`, `args = ["--token", "--hush"]`,
		`args = ["--user", "me:hush"]`, `args = ["X-Api-Key: hush"]`, `args = ["-e", "DEEPL_KEY=hush"]`, `args = ["-c", "run --header=\"Authorization:Basic hush\""]`,
		`url = "https://h/p?api-key=hush"`, `url = "https://h/p?a=b&key=hush"`, `url = "https://h/p?a=b&access_token=hush#x"`, `url = "https://u:hush@h/"`,
		`auth = "Basic hush"`, `x = "bearer hush"`, `x = "Authorization: hush"`, `tokens = ["hush"]`, `token = {value = "hush"}`, `[[secrets]]
name = "hush"`, `password = 1234567`, `password = "$hush"`, `args = ["--password", "$hush1"]`, `sessionKey = "hush"`, `key = "hush"`, `env = {DEEPL_AUTH_KEY = "hush"}`, `x = ["--api-key", "hush"]`,
		`token = "{env:A}hush"`, `token = "${A:-hush}"`, `bearer_token_env_var = "hush-hush"`, `x = "the key is sk-ant-hush-0123456789012345"`,
		`command = "tool --api-key hush"`, `command = "curl -H 'X: hush' h"`, `command = ["tool", "--api-key", "hush"]`, `command = "A_TOKEN=hush tool"`,
	} {
		if clean, _ := scrubbed(t, text); strings.Contains(clean, "hush") || strings.Contains(clean, "12345") {
			t.Errorf("%s: %s", text, clean)
		}
	}
}

func TestWhatIsNoCredentialStays(t *testing.T) {
	for _, text := range []string{
		`args = ["-y", "stays"]`, `args = ["--api-key", "${STAYS}"]`, `args = ["--api-key=$STAYS"]`, `args = ["--max-tokens=100", "stays"]`, `url = "https://h/p?a=stays"`,
		`token = "{env:STAYS}"`, `token = "$STAYS"`, `bearer_token_env_var = "STAYS"`, `env_key = "STAYS"`, `command = "curl https://h/ -o stays"`, `x = {max_tokens = 4096, y = "stays"}`,
		`deny = ["Read(./stays)", "Bash(sort -k 2)"]`, `path = "/usr/bin:stays"`, `theme = "stays"`,
	} {
		if clean, left := scrubbed(t, text); !strings.Contains(strings.ToLower(clean), "stays") || len(left) > 0 {
			t.Errorf("%s: %s, without %q", text, clean, left)
		}
	}
	if clean, _ := scrubbed(t, "max_output_tokens = 4096\nuse_token_cache = true"); clean != "map[max_output_tokens:4096 use_token_cache:true]" {
		t.Error(clean)
	}
}

// TestTheArgumentsOfAServerAreLeftOutAsAWhole: with one of them missing it would do something else.
func TestTheArgumentsOfAServerAreLeftOutAsAWhole(t *testing.T) {
	clean, left := scrubbed(t, "[mcp_servers.x]\ncommand = \"stays\"\nargs = [\"-y\", \"gone\", \"--api-key=hush\"]\n[mcp.y]\ncommand = [\"gone\", \"--token\", \"hush\"]\nenabled = true\n")
	slices.Sort(left)
	if clean != "map[mcp:map[] mcp_servers:map[x:map[command:stays]]]" || !slices.Equal(left, []string{"mcp.y.command", "mcp_servers.x.args"}) {
		t.Errorf("%s, without %q", clean, left)
	}
	s := prepared(t, "codex", map[string]string{".codex/config.toml": "[mcp_servers.x]\nargs = [\"--api-key=hush\"]\n"})
	if text := all(t, s); strings.Contains(text, "hush") || !strings.Contains(strings.Join(s.Notices, "\n"), "config.toml: mcp_servers.x.args may hold a credential") {
		t.Errorf("%s %q", text, s.Notices)
	}
}
