//go:build linux

package agents

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A provider is a stand-in for a provider of models, by TLS on this host, that wants a key and counts the tokens
// that it reports.
type provider struct {
	key, port string

	mu      sync.Mutex
	served  []string // requests with the key
	refused []string // requests without it
	tokens  int64
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	random := make([]byte, 24)
	_, _ = rand.Read(random) // it never fails
	p := &provider{key: "sk-ant-api03-" + hex.EncodeToString(random)}
	_, p.port = serveTLS(t, p, false)
	t.Setenv("SNAPFS_TEST_PROVIDER_KEY", p.key)
	return p
}

// ServeHTTP answers Anthropic's Messages and OpenAI's Chat, streamed if the request says so. Each answer reports other
// numbers of tokens.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var body struct {
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.Unmarshal(text, &body) // another request has no body
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Header.Get("X-Api-Key") != p.key && r.Header.Get("Authorization") != "Bearer "+p.key {
		p.refused = append(p.refused, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	p.served = append(p.served, fmt.Sprint(r.Method, " ", r.URL.Path, " stream ", body.Stream))
	in, out := 10+len(p.served), 100*len(p.served)
	p.tokens += int64(in + out)
	events := func(events ...string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			fmt.Fprint(w, e+"\n\n")
			_ = http.NewResponseController(w).Flush() // a client that has gone needs nothing
		}
	}
	answer := func(text string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
	}
	message := fmt.Sprintf(`{"id":"m","type":"message","role":"assistant","model":"x","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":%d}}`, in, out)
	chat := fmt.Sprintf(`{"id":"c","object":"chat.completion","created":1,"model":"x","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, in, out, in+out)
	switch {
	case r.URL.Path == "/v1/messages" && body.Stream:
		events("event: message_start\n"+fmt.Sprintf(`data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":1}}}`, in),
			`event: content_block_start`+"\n"+`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`event: content_block_delta`+"\n"+`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}`,
			`event: content_block_stop`+"\n"+`data: {"type":"content_block_stop","index":0}`,
			`event: message_delta`+"\n"+fmt.Sprintf(`data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}}`, out),
			`event: message_stop`+"\n"+`data: {"type":"message_stop"}`)
	case r.URL.Path == "/v1/messages":
		answer(message)
	case r.URL.Path == "/v1/chat/completions" && body.Stream:
		last := `data: [DONE]`
		if body.StreamOptions.IncludeUsage {
			last = fmt.Sprintf(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"x","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, in, out, in+out) + "\n\n" + last
		}
		events(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}`, last)
	case r.URL.Path == "/v1/chat/completions":
		answer(chat)
	default:
		p.tokens -= int64(in + out)
		w.WriteHeader(http.StatusNotFound)
	}
}

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
			d, p := newDesk(t), newProvider(t)
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
			if err != nil || !strings.HasPrefix(out, "hello\nhello\ndirect: ") || !strings.Contains(out, "CERTIFICATE_VERIFY_FAILED") || !strings.Contains(out, one.refusal) || strings.Contains(out, p.key) {
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
			if err != nil || spent.Used.Tokens != p.tokens || p.tokens == 0 {
				t.Errorf("the provider reported %d tokens: %v %s", p.tokens, err, out)
			}
			if out, err = d.snapfs("net", "fix"); err != nil || !strings.Contains(out, one.refusal) {
				t.Errorf("net: %v %s", err, out)
			}
		})
	}
}
