//go:build linux

package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

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
	d, c := newDesk(t), newProvider(t, false)
	c.busyEvery = 11
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
	if answered+busy != 7*calls || busy != c.busy || busy == 0 {
		t.Errorf("%d calls answered and %d refused; the provider refused %d", answered, busy, c.busy)
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
		t.Errorf("%+v; the provider reported %d + %d tokens in %d answers", spent, c.input, c.output, len(c.served))
	}
}
