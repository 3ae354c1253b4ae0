//go:build linux

package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A counter is a stand-in for the providers of models, by TLS on this host. It answers Anthropic's Messages, OpenAI's
// Chat and Responses and Google's generateContent, streamed or not, and counts the tokens that its answers report.
type counter struct {
	port string

	mu            sync.Mutex
	calls         map[string]int64 // by path, without the model
	input, output int64
	failed        int64
}

// newCounter starts a counter.
func newCounter(t *testing.T) *counter {
	t.Helper()
	c := &counter{calls: map[string]int64{}}
	_, c.port = serveTLS(t, c, true)
	return c
}

// ServeHTTP answers one call. Each reports other numbers of tokens, and every eleventh is refused, which costs nothing.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var asked struct {
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.Unmarshal(text, &asked) // the zero value
	path := r.URL.Path
	if _, verb, ok := strings.Cut(path, ":"); ok {
		path, asked.Stream = verb, verb == "streamGenerateContent"
	}
	c.mu.Lock()
	c.calls[path]++
	all := int64(0)
	for _, n := range c.calls {
		all += n
	}
	fails := all%11 == 0
	in, out := 5+all%13, 2+all%7
	if fails {
		c.failed++
	} else {
		c.input += in
		c.output += out
	}
	c.mu.Unlock()
	if fails {
		http.Error(w, `{"type":"error","error":{"type":"overloaded_error","message":"overloaded","code":503,"status":"UNAVAILABLE"}}`, http.StatusServiceUnavailable)
		return
	}
	switch path {
	case "/v1/messages":
		messages(w, asked.Stream, in, out)
	case "/v1/chat/completions":
		chat(w, asked.Stream, asked.StreamOptions.IncludeUsage, in, out)
	case "/v1/responses":
		responses(w, asked.Stream, in, out)
	default:
		gemini(w, asked.Stream, in, out)
	}
}

// send writes one event of a stream, at once.
func send(w http.ResponseWriter, name string, fields any) {
	w.Header().Set("Content-Type", "text/event-stream")
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err) // a value of this file
	}
	if name != "" {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	fmt.Fprintf(w, "data: %s\n\n", data)
	_ = http.NewResponseController(w).Flush() // a client that has gone needs nothing
}

func reply(w http.ResponseWriter, fields any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(fields) // a client that has gone needs nothing
}

func messages(w http.ResponseWriter, stream bool, in, out int64) {
	whole := M{
		"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []M{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": M{"input_tokens": in - 3, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": out},
	}
	if !stream {
		reply(w, whole)
		return
	}
	whole["usage"].(M)["output_tokens"] = 1 //nolint:errcheck,forcetypeassert // from above
	send(w, "message_start", M{"type": "message_start", "message": whole})
	send(w, "content_block_start", M{"type": "content_block_start", "index": 0, "content_block": M{"type": "text", "text": ""}})
	for range 4 {
		send(w, "content_block_delta", M{"type": "content_block_delta", "index": 0, "delta": M{"type": "text_delta", "text": "hello"}})
	}
	send(w, "content_block_stop", M{"type": "content_block_stop", "index": 0})
	send(w, "message_delta", M{"type": "message_delta", "delta": M{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": M{"output_tokens": out}})
	send(w, "message_stop", M{"type": "message_stop"})
}

func chat(w http.ResponseWriter, stream, usage bool, in, out int64) {
	used := M{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
	if !stream {
		reply(w, M{"id": "c", "object": "chat.completion", "created": 1, "model": "x", "usage": used, "choices": []M{{"index": 0, "finish_reason": "stop", "message": M{"role": "assistant", "content": "hello"}}}})
		return
	}
	chunk := M{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": []M{{"index": 0, "delta": M{"role": "assistant", "content": "hello"}, "finish_reason": nil}}}
	for range 4 {
		send(w, "", chunk)
	}
	if usage { // which the SDK has not asked for, and the proxy has
		chunk["choices"], chunk["usage"] = []M{}, used
		send(w, "", chunk)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func responses(w http.ResponseWriter, stream bool, in, out int64) {
	whole := M{
		"id": "r", "object": "response", "created_at": 1, "model": "x", "status": "completed", "output": []M{}, "parallel_tool_calls": false, "tool_choice": "auto", "tools": []M{},
		"usage": M{"input_tokens": in, "output_tokens": out, "total_tokens": in + out, "input_tokens_details": M{"cached_tokens": 1}, "output_tokens_details": M{"reasoning_tokens": 1}},
	}
	if !stream {
		reply(w, whole)
		return
	}
	begun := M{"id": "r", "object": "response", "created_at": 1, "model": "x", "status": "in_progress", "output": []M{}}
	send(w, "response.created", M{"type": "response.created", "sequence_number": 0, "response": begun})
	for i := range 4 {
		send(w, "response.output_text.delta", M{"type": "response.output_text.delta", "sequence_number": i + 1, "item_id": "i", "output_index": 0, "content_index": 0, "delta": "hello", "logprobs": []M{}})
	}
	send(w, "response.completed", M{"type": "response.completed", "sequence_number": 5, "response": whole})
}

func gemini(w http.ResponseWriter, stream bool, in, out int64) {
	part := func(out int64) M {
		return M{
			"candidates":    []M{{"content": M{"role": "model", "parts": []M{{"text": "hello"}}}, "index": 0}},
			"usageMetadata": M{"promptTokenCount": in, "candidatesTokenCount": out - 1, "thoughtsTokenCount": 1, "totalTokenCount": in + out},
		}
	}
	if !stream {
		reply(w, part(out))
		return
	}
	for range 4 {
		send(w, "", part(2)) // one and a thought so far
	}
	send(w, "", part(out))
}

// The programs call by each SDK, as its documents say: a third of the calls whole, a third streamed, and a third of them
// streamed and left after the first event. They print how many were answered, refused by the server, or by anybody else.
const (
	callsInPython = `
import os, sys
from concurrent.futures import ThreadPoolExecutor
import anthropic, openai
from google import genai
each, url = int(sys.argv[1]), sys.argv[2]
a = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)
o = openai.OpenAI(api_key="k", base_url=url + "/v1", max_retries=0)
g = genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=url))
say = [{"role": "user", "content": "say hello"}]
def drop(stream):
    for _ in stream:
        break
    stream.close()
def google(i):
    if i % 3 == 0:
        return g.models.generate_content(model="x", contents="say hello")
    stream = g.models.generate_content_stream(model="x", contents="say hello")
    if i % 3 == 1:
        return list(stream)
    drop(stream)
def by(create, **ask):
    def one(i):
        if i % 3 == 0:
            return create(**ask)
        stream = create(stream=True, **ask)
        return list(stream) if i % 3 == 1 else drop(stream)
    return one
kinds = [by(a.messages.create, model="x", max_tokens=50, messages=say), by(o.chat.completions.create, model="x", max_tokens=50, messages=say),
    by(o.responses.create, model="x", max_output_tokens=50, input="say hello"), google]
def call(i):
    try:
        kinds[i % 4](i // 4)
        return "answered"
    except Exception as e:
        code = getattr(e, "status_code", None) or getattr(e, "code", None)
        return "busy" if code == 503 else repr(e)
with ThreadPoolExecutor(16) as pool:
    for line in pool.map(call, range(each * 4)):
        print(line)
`
	callsInJavaScript = `
const { Anthropic } = require("@anthropic-ai/sdk");
const { OpenAI } = require("openai");
const each = Number(process.argv[2]), url = process.argv[3];
const a = new Anthropic({ apiKey: "k", baseURL: url, maxRetries: 0 });
const o = new OpenAI({ apiKey: "k", baseURL: url + "/v1", maxRetries: 0 });
const messages = [{ role: "user", content: "say hello" }];
const kinds = [
  (more) => a.messages.create({ model: "x", max_tokens: 50, messages, ...more }),
  (more) => o.chat.completions.create({ model: "x", max_tokens: 50, messages, ...more }),
  (more) => o.responses.create({ model: "x", max_output_tokens: 50, input: "say hello", ...more }),
];
let next = 0;
async function call(i) {
  const create = kinds[i % 3], way = Math.floor(i / 3) % 3;
  try {
    if (way === 0) await create({});
    else for await (const _ of await create({ stream: true })) if (way === 2) break;
    return "answered";
  } catch (e) {
    return e.status === 503 ? "busy" : String(e);
  }
}
(async () => {
  await Promise.all(Array.from({ length: 16 }, async () => {
    while (next < each * 3) console.log(await call(next++));
  }));
})();
`
)

// TestTokensOfRealSDKsAreExact: the ledger of a sandbox agrees to the token with the provider, after a thousand calls
// by five SDKs that their registries have, 16 at once, a third of them left in the middle of their stream. Only make
// test-long runs it. Cost: 20 s beside the fetch of 120 MB.
func TestTokensOfRealSDKsAreExact(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/net/tun")
	const calls = 144 // of each of seven kinds
	python := pip(t, "anthropic==2.14.0", "openai==3.57.0", "google-genai==3.6.1")
	modules := filepath.Dir(npm(t, "@anthropic-ai/sdk@1.14.0", "openai@7.59.0"))
	d, c := newDesk(t), newCounter(t)
	profile := filepath.Join(treetest.Dir(t), "profile.toml")
	text := "[sandbox]\nnet = [\"POST https://host.snapfs:" + c.port + "\"]\n[budget]\ntokens = 1000000000\nhosts = [\"host.snapfs\"]\n"
	if err := os.WriteFile(profile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.snapfs("new", "-C", d.work, "--profile", profile, "fix"); err != nil {
		t.Fatal(err)
	}
	// A proxy ends with the last command, and counts what it still reads on then as its worst case.
	if out, err := d.snapfs("exec", "-d", "fix", "--", "sleep", "1000"); err != nil {
		t.Fatal(err, out)
	}
	url := "https://host.snapfs:" + c.port
	answered, busy := int64(0), int64(0)
	for _, program := range [][]string{
		{python, "-c", callsInPython, strconv.Itoa(calls), url},
		{"env", "NODE_PATH=" + modules, "node", "-e", callsInJavaScript, "--", "calls", strconv.Itoa(calls), url},
	} {
		out, err := d.snapfs(append([]string{"exec", "fix", "--"}, program...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for line := range strings.Lines(out) {
			switch strings.TrimSpace(line) {
			case "answered":
				answered++
			case "busy":
				busy++
			default:
				t.Errorf("a call ended with %s", line)
			}
		}
	}
	if answered+busy != 7*calls || busy != c.failed || busy == 0 {
		t.Errorf("%d calls answered and %d refused; the provider refused %d", answered, busy, c.failed)
	}
	var spent struct {
		Used struct {
			Requests, Tokens int64
			Input            int64 `json:"input_tokens"`
			Output           int64 `json:"output_tokens"`
		}
		Reserved  struct{ Tokens int64 }
		Estimated int64
		Models    map[string]struct{ Requests int64 }
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // polls the ledger, which drains the streams that were left
		out, err := d.snapfs("budget", "show", "--json", "fix")
		if err != nil || time.Now().After(end) {
			t.Fatal(err, out)
		}
		spent.Reserved.Tokens = 0
		if err := json.Unmarshal([]byte(out), &spent); err != nil {
			t.Fatal(err, out)
		}
		if spent.Reserved.Tokens == 0 {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := spent.Used
	if u.Requests != 7*calls || u.Input != c.input || u.Output != c.output || u.Tokens != c.input+c.output || spent.Estimated != 0 || spent.Models["x"].Requests != 7*calls {
		t.Errorf("%+v; the provider reported %d + %d tokens in %v", spent, c.input, c.output, c.calls)
	}
}
