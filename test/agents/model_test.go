//go:build linux

package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A step is a tool of snapfs that the scripted model calls, with its arguments.
type step struct {
	tool string
	args M
}

// A model is a service on loopback that speaks as a vendor's does, and follows a script: to a request with N results
// of tools it answers with step N. It serves Anthropic's Messages and OpenAI's Responses, streamed.
type model struct {
	*httptest.Server
	steps []step
	mu    sync.Mutex
	// results are the results of tools in the last request, as text.
	results []string
}

func newModel(t *testing.T, steps []step) *model {
	t.Helper()
	m := &model{steps: steps}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

// A modelRequest has the parts of both vendors' requests that the script needs.
type modelRequest struct {
	Model    string
	Stream   bool
	Tools    []json.RawMessage
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
	Input []struct {
		Type   string
		Output json.RawMessage
	}
}

// found returns the results of tools in a request.
func (r *modelRequest) found() (results []string) {
	for _, m := range r.Messages {
		var blocks []struct {
			Type    string
			Content json.RawMessage
		}
		if m.Role == "tool" { // of the protocol with completions
			results = append(results, string(m.Content))
			continue
		}
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue // a plain text
		}
		for _, b := range blocks {
			if b.Type == "tool_result" {
				results = append(results, string(b.Content))
			}
		}
	}
	for _, i := range r.Input {
		if strings.HasSuffix(i.Type, "call_output") {
			results = append(results, string(i.Output))
		}
	}
	return results
}

func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	var q modelRequest
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Method == http.MethodPost {
		err = json.NewDecoder(bytes.NewReader(body)).Decode(&q)
	}
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, `{"error":{"type":"not_found_error","message":"not here"}}`, http.StatusNotFound)
		return
	}
	results := q.found()
	var next *step
	if len(q.Tools) > 0 && len(results) < len(m.steps) { // a request without tools asks for a title
		next = &m.steps[len(results)]
	}
	if len(q.Tools) > 0 {
		m.mu.Lock()
		m.results = results
		m.mu.Unlock()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if strings.HasSuffix(r.URL.Path, "/responses") {
		m.responses(w, len(results), next)
	} else {
		m.messages(w, q.Model, len(results), next)
	}
}

func event(w io.Writer, kind string, fields M) {
	fields["type"] = kind
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err) // a value of this file
	}
	fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
}

// messages answers as Anthropic's service does.
func (m *model) messages(w io.Writer, name string, n int, next *step) {
	block, stop := M{"type": "text", "text": ""}, "end_turn"
	delta := M{"type": "text_delta", "text": "done"}
	if next != nil {
		args, _ := json.Marshal(next.args) // a value of the script
		block = M{"type": "tool_use", "id": fmt.Sprintf("toolu_%024d", n), "name": "mcp__snapfs__sandbox_" + next.tool, "input": M{}}
		delta, stop = M{"type": "input_json_delta", "partial_json": string(args)}, "tool_use"
	}
	event(w, "message_start", M{"message": M{
		"id": fmt.Sprintf("msg_%024d", n), "type": "message", "role": "assistant", "model": name, "content": []M{}, "stop_reason": nil,
		"stop_sequence": nil, "usage": M{"input_tokens": 1, "output_tokens": 1},
	}})
	event(w, "content_block_start", M{"index": 0, "content_block": block})
	event(w, "content_block_delta", M{"index": 0, "delta": delta})
	event(w, "content_block_stop", M{"index": 0})
	event(w, "message_delta", M{"delta": M{"stop_reason": stop, "stop_sequence": nil}, "usage": M{"output_tokens": 1}})
	event(w, "message_stop", M{})
}

// responses answers as OpenAI's service does.
func (m *model) responses(w io.Writer, n int, next *step) {
	item := M{"type": "message", "id": fmt.Sprintf("msg_%d", n), "role": "assistant", "status": "completed", "content": []M{{"type": "output_text", "text": "done", "annotations": []M{}}}}
	if next != nil {
		args, _ := json.Marshal(next.args) // a value of the script
		item = M{
			"type": "function_call", "id": fmt.Sprintf("fc_%d", n), "call_id": fmt.Sprintf("call_%d", n), "namespace": "mcp__snapfs",
			"name": "sandbox_" + next.tool, "arguments": string(args), "status": "completed",
		}
	}
	usage := M{"input_tokens": 1, "input_tokens_details": M{"cached_tokens": 0}, "output_tokens": 1, "output_tokens_details": M{"reasoning_tokens": 0}, "total_tokens": 2}
	response := M{"id": fmt.Sprintf("resp_%d", n), "object": "response", "status": "in_progress", "output": []M{}}
	event(w, "response.created", M{"response": response})
	event(w, "response.output_item.added", M{"output_index": 0, "item": item})
	event(w, "response.output_item.done", M{"output_index": 0, "item": item})
	event(w, "response.completed", M{"response": M{"id": response["id"], "object": "response", "status": "completed", "output": []M{item}, "usage": usage}})
}

// last returns the results of tools in the last request.
func (m *model) last() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results
}
