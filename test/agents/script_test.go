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

// A toolCall is a call of one of the agent's own tools.
type toolCall struct {
	tool string
	args M
}

// A turn returns the calls with which the model answers the results so far; none ends the conversation.
type turn func(results []string) []toolCall

func calls(all ...toolCall) turn { return func([]string) []toolCall { return all } }

// A script is a service on loopback that answers each conversation by turns of its own: those of the name that stands
// as "task:NAME" in the conversation's text. A subagent has a conversation of its own.
type script struct {
	*httptest.Server
	tasks map[string][]turn
	mu    sync.Mutex
	// last holds the last request of each task, and results its results of tools.
	last    map[string]string
	results map[string][]string
	next    int
	// usage is the number of input tokens that each answer reports by the protocol of Messages, 1 if it is 0.
	usage int
}

func newScript(t *testing.T, tasks map[string][]turn) *script {
	t.Helper()
	s := &script{tasks: tasks, last: map[string]string{}, results: map[string][]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// taskOf returns the task of a conversation: the first that its text names.
func (s *script) taskOf(body []byte) (task string) {
	first := len(body)
	for name := range s.tasks {
		if i := bytes.Index(body, []byte("task:"+name)); i >= 0 && i < first {
			task, first = name, i
		}
	}
	return task
}

func (s *script) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var q modelRequest
	if err == nil && r.Method == http.MethodPost {
		err = json.Unmarshal(body, &q)
	}
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, `{"error":{"type":"not_found_error","message":"not here"}}`, http.StatusNotFound)
		return
	}
	var conversation struct{ Messages, Input json.RawMessage }
	_ = json.Unmarshal(body, &conversation) // it was read before
	task := s.taskOf(append(conversation.Messages, conversation.Input...))
	results := q.found()
	var next []toolCall
	if turns := s.tasks[task]; len(q.Tools) > 0 {
		if n := s.turnOf(task, results); n < len(turns) {
			next = turns[n](results)
		}
	}
	s.mu.Lock()
	if len(q.Tools) > 0 {
		s.last[task], s.results[task] = string(body), results
	}
	s.next++
	id := s.next
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	switch {
	case strings.HasSuffix(r.URL.Path, "/responses"):
		scriptResponses(w, id, next)
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		scriptChat(w, id, next)
	default:
		scriptMessages(w, q.Model, id, max(s.usage, 1), next)
	}
}

// turnOf returns the number of the turn that follows the results: turns before it have made as many calls.
func (s *script) turnOf(task string, results []string) (n int) {
	made := 0
	for _, t := range s.tasks[task] {
		if made >= len(results) {
			break
		}
		made += len(t(results[:made]))
		n++
	}
	return n
}

func scriptMessages(w io.Writer, name string, id, usage int, next []toolCall) {
	stop := "end_turn"
	event(w, "message_start", M{"message": M{
		"id": fmt.Sprintf("msg_%024d", id), "type": "message", "role": "assistant", "model": name, "content": []M{}, "stop_reason": nil,
		"stop_sequence": nil, "usage": M{"input_tokens": usage, "output_tokens": 1},
	}})
	if next == nil {
		event(w, "content_block_start", M{"index": 0, "content_block": M{"type": "text", "text": ""}})
		event(w, "content_block_delta", M{"index": 0, "delta": M{"type": "text_delta", "text": "done"}})
		event(w, "content_block_stop", M{"index": 0})
	}
	for i, c := range next {
		stop = "tool_use"
		args, _ := json.Marshal(c.args) // a value of the script
		event(w, "content_block_start", M{"index": i, "content_block": M{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", id, i), "name": c.tool, "input": M{}}})
		event(w, "content_block_delta", M{"index": i, "delta": M{"type": "input_json_delta", "partial_json": string(args)}})
		event(w, "content_block_stop", M{"index": i})
	}
	event(w, "message_delta", M{"delta": M{"stop_reason": stop, "stop_sequence": nil}, "usage": M{"output_tokens": 1}})
	event(w, "message_stop", M{})
}

func scriptResponses(w io.Writer, id int, next []toolCall) {
	items := []M{}
	for i, c := range next {
		args, _ := json.Marshal(c.args) // a value of the script
		item := M{"type": "function_call", "id": fmt.Sprintf("fc_%d_%d", id, i), "call_id": fmt.Sprintf("call_%d_%d", id, i), "name": c.tool, "arguments": string(args), "status": "completed"}
		if text, ok := c.args["patch"].(string); ok { // a tool with free text
			item["type"], item["input"] = "custom_tool_call", text
			delete(item, "arguments")
		}
		items = append(items, item)
	}
	if next == nil {
		items = []M{{"type": "message", "id": fmt.Sprintf("msg_%d", id), "role": "assistant", "status": "completed", "content": []M{{"type": "output_text", "text": "done", "annotations": []M{}}}}}
	}
	usage := M{"input_tokens": 1, "input_tokens_details": M{"cached_tokens": 0}, "output_tokens": 1, "output_tokens_details": M{"reasoning_tokens": 0}, "total_tokens": 2}
	name := fmt.Sprintf("resp_%d", id)
	event(w, "response.created", M{"response": M{"id": name, "object": "response", "status": "in_progress", "output": []M{}}})
	for i, item := range items {
		event(w, "response.output_item.added", M{"output_index": i, "item": item})
		event(w, "response.output_item.done", M{"output_index": i, "item": item})
	}
	event(w, "response.completed", M{"response": M{"id": name, "object": "response", "status": "completed", "output": items, "usage": usage}})
}

func scriptChat(w io.Writer, id int, next []toolCall) {
	message, stop := M{"role": "assistant", "content": "done"}, "stop"
	if next != nil {
		var all []M
		for i, c := range next {
			args, _ := json.Marshal(c.args) // a value of the script
			all = append(all, M{"index": i, "id": fmt.Sprintf("call_%d_%d", id, i), "type": "function", "function": M{"name": c.tool, "arguments": string(args)}})
		}
		message, stop = M{"role": "assistant", "content": nil, "tool_calls": all}, "tool_calls"
	}
	for _, choice := range []M{{"index": 0, "delta": message, "finish_reason": nil}, {"index": 0, "delta": M{}, "finish_reason": stop}} {
		data, _ := json.Marshal(M{"id": fmt.Sprintf("chat_%d", id), "object": "chat.completion.chunk", "model": "x", "choices": []M{choice}})
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
