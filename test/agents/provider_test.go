//go:build linux

package agents

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A provider is a stand-in for the providers of models, by TLS on this host. It answers Anthropic's Messages, OpenAI's
// Chat and Responses and Google's generateContent, streamed or not, and counts the tokens that its answers report, other
// numbers in each.
type provider struct {
	port string
	// key is the key that each request must have, or "".
	key string
	// busyEvery is set if each request with this number is refused, which costs nothing.
	busyEvery int

	mu            sync.Mutex
	served        []string // requests that were answered
	refused       []string // requests without the key
	busy          int64
	input, output int64
}

// newProvider starts a provider; keyed makes it want a key, which is in SNAPFS_TEST_PROVIDER_KEY.
func newProvider(t *testing.T, keyed bool) *provider {
	t.Helper()
	p := &provider{}
	if keyed {
		random := make([]byte, 24)
		_, _ = rand.Read(random) // it never fails
		p.key = "sk-ant-api03-" + hex.EncodeToString(random)
		t.Setenv("SNAPFS_TEST_PROVIDER_KEY", p.key)
	}
	_, p.port = serveTLS(t, p, !keyed)
	return p
}

// admit counts a request, and returns how many tokens its answer reports, or the status with which it is refused.
func (p *provider) admit(r *http.Request, stream bool) (in, out int64, refusal int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.key != "" && r.Header.Get("X-Api-Key") != p.key && r.Header.Get("Authorization") != "Bearer "+p.key {
		p.refused = append(p.refused, r.Method+" "+r.URL.Path)
		return 0, 0, http.StatusUnauthorized
	}
	if n := len(p.served) + int(p.busy) + 1; p.busyEvery > 0 && n%p.busyEvery == 0 {
		p.busy++
		return 0, 0, http.StatusServiceUnavailable
	}
	p.served = append(p.served, fmt.Sprint(r.Method, " ", r.URL.Path, " stream ", stream))
	n := int64(len(p.served))
	in, out = 5+n%13, 2+n%7
	p.input, p.output = p.input+in, p.output+out
	return in, out, 0
}

// ServeHTTP answers one call.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var asked struct {
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.Unmarshal(text, &asked) // the zero value: another request has no body
	path := r.URL.Path
	if _, verb, ok := strings.Cut(path, ":"); ok {
		path, asked.Stream = verb, verb == "streamGenerateContent"
	}
	answer := map[string]func(in, out int64){
		"/v1/messages":          func(in, out int64) { messages(w, asked.Stream, in, out) },
		"/v1/chat/completions":  func(in, out int64) { chat(w, asked.Stream, asked.StreamOptions.IncludeUsage, in, out) },
		"/v1/responses":         func(in, out int64) { responses(w, asked.Stream, in, out) },
		"generateContent":       func(in, out int64) { gemini(w, false, in, out) },
		"streamGenerateContent": func(in, out int64) { gemini(w, true, in, out) },
	}[path]
	if answer == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	in, out, refusal := p.admit(r, asked.Stream)
	switch refusal {
	case 0:
		answer(in, out)
	case http.StatusServiceUnavailable:
		http.Error(w, `{"type":"error","error":{"type":"overloaded_error","message":"overloaded","code":503,"status":"UNAVAILABLE"}}`, refusal)
	default:
		w.WriteHeader(refusal)
	}
}

// pieces is the number of parts in which a stream says hello.
const pieces = 4

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
		"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []M{{"type": "text", "text": "hello"}}, "stop_reason": "end_turn", "stop_sequence": nil,
		"usage": M{"input_tokens": in - 3, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": out},
	}
	if !stream {
		reply(w, whole)
		return
	}
	whole["content"], whole["stop_reason"] = []M{}, nil
	whole["usage"].(M)["output_tokens"] = 1 //nolint:errcheck,forcetypeassert // from above
	send(w, "message_start", M{"type": "message_start", "message": whole})
	send(w, "content_block_start", M{"type": "content_block_start", "index": 0, "content_block": M{"type": "text", "text": ""}})
	for range pieces {
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
	for range pieces {
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
	for i := range pieces {
		send(w, "response.output_text.delta", M{"type": "response.output_text.delta", "sequence_number": i + 1, "item_id": "i", "output_index": 0, "content_index": 0, "delta": "hello", "logprobs": []M{}})
	}
	send(w, "response.completed", M{"type": "response.completed", "sequence_number": pieces + 1, "response": whole})
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
	for range pieces {
		send(w, "", part(2)) // one and a thought so far
	}
	send(w, "", part(out))
}
