//go:build linux

package agents

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// The programs use the SDKs as their documents say, with their own certificates: they do not trust the sandbox's CA.
const (
	anthropicProgram = `
import anthropic, os
c = anthropic.Anthropic(max_retries=0)
ask = dict(model="x", max_tokens=2000, messages=[{"role": "user", "content": "say hello"}])
print(c.messages.create(**ask).content[0].text)
with c.messages.stream(**ask) as s:
    print("".join(s.text_stream))
try:
    anthropic.Anthropic(max_retries=0, base_url=os.environ["DIRECT"]).messages.create(**ask)
except anthropic.APIConnectionError as e:
    print("direct:", e.__cause__)
try:
    c.get("/admin", cast_to=object)
except anthropic.PermissionDeniedError as e:
    print("refused:", e.message)
`
	openaiProgram = `
import openai, os
c = openai.OpenAI(max_retries=0)
ask = dict(model="x", max_tokens=2000, messages=[{"role": "user", "content": "say hello"}])
print(c.chat.completions.create(**ask).choices[0].message.content)
print("".join(chunk.choices[0].delta.content or "" for chunk in c.chat.completions.create(stream=True, **ask) if chunk.choices))
try:
    openai.OpenAI(max_retries=0, base_url=os.environ["DIRECT"] + "/v1").chat.completions.create(**ask)
except openai.APIConnectionError as e:
    print("direct:", e.__cause__)
try:
    c.get("/admin", cast_to=object)
except openai.PermissionDeniedError as e:
    print("refused:", e.message)
`
)

// TestRealSDKsUseABaseURL: the SDKs of Anthropic and OpenAI, unchanged as their registry has them, without the
// sandbox's CA. The budget counts the tokens that the provider reported, streamed or not. Only make test-long runs it.
func TestRealSDKsUseABaseURL(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/net/tun")
	for name, one := range map[string]struct{ pack, variable, program, path, refusal string }{
		"anthropic": {"anthropic==2.14.0", "ANTHROPIC", anthropicProgram, "/v1/messages", "not for the path /admin"},
		"openai":    {"openai==3.57.0", "OPENAI", openaiProgram, "/v1/chat/completions", "not for the path /v1/admin"},
	} {
		t.Run(name, func(t *testing.T) {
			python := pip(t, one.pack)
			d, p := newDesk(t), newProvider(t, true)
			profile := filepath.Join(treetest.Dir(t), "profile.toml")
			text := "[sandbox]\nnet = [\"host.snapfs:" + p.port + "\"]\n[secrets.key]\nenv = \"SNAPFS_TEST_PROVIDER_KEY\"\nas = \"" + one.variable + "_API_KEY\"\nhosts = [\"host.snapfs:" + p.port +
				"\"]\npaths = [\"" + one.path + "\"]\nbase-url = \"" + one.variable + "_BASE_URL\"\n[budget]\ntokens = 100000\nhosts = [\"host.snapfs\"]\n"
			if err := os.WriteFile(profile, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := d.snapfs("new", "-C", d.work, "--profile", profile, "fix"); err != nil {
				t.Fatal(err)
			}
			out, err := d.snapfs("exec", "fix", "--", "env", "-u", "SSL_CERT_FILE", "-u", "REQUESTS_CA_BUNDLE", "-u", "CURL_CA_BUNDLE", "DIRECT=https://host.snapfs:"+p.port, python, "-c", one.program)
			if err != nil || !strings.HasPrefix(out, "hello\n"+strings.Repeat("hello", pieces)+"\ndirect: ") || !strings.Contains(out, "CERTIFICATE_VERIFY_FAILED") || !strings.Contains(out, one.refusal) || strings.Contains(out, p.key) {
				t.Errorf("%v\n%s", err, out)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if want := []string{"POST " + one.path + " stream false", "POST " + one.path + " stream true"}; fmt.Sprint(p.served) != fmt.Sprint(want) || len(p.refused) > 0 {
				t.Errorf("served %q, refused %q", p.served, p.refused)
			}
			var spent struct {
				Used, Reserved struct{ Tokens int64 }
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // the client may be faster than the ledger
				out, err = d.snapfs("budget", "show", "--json", "fix")
				if err != nil || json.Unmarshal([]byte(out), &spent) != nil || spent.Reserved.Tokens == 0 || time.Now().After(end) {
					break
				}
				spent.Reserved.Tokens = 0
			}
			if err != nil || spent.Used.Tokens != p.input+p.output || p.input == 0 {
				t.Errorf("the provider reported %d tokens: %v %s", p.input+p.output, err, out)
			}
			if out, err = d.snapfs("net", "fix"); err != nil || !strings.Contains(out, one.refusal) {
				t.Errorf("net: %v %s", err, out)
			}
		})
	}
}
