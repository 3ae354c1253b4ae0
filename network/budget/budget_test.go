package budget

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestParallelRequestsNeverExceedALimit(t *testing.T) {
	dir := t.TempDir()
	if err := SetLimits(dir, Count{Tokens: 1000}); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var used, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for range 10 {
				r, over, err := l.Reserve(Count{Requests: 1, Tokens: 30})
				if over != nil {
					refused.Add(1)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				n := int64(i%7 + 1)
				used.Add(n)
				if err := r.Settle(Count{Requests: 1, Tokens: n}, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s, err := Read(dir)
	if err != nil || s.Used.Tokens != used.Load() || s.Used.Tokens > 1000 || s.Reserved != (Count{}) || refused.Load() == 0 {
		t.Errorf("%+v, %v; used %d, refused %d", s, err, used.Load(), refused.Load())
	}
}

func TestAKilledLedgerKeepsItsReservations(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, _, err := l.Reserve(Count{Requests: 1, Tokens: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Settle(Count{Requests: 1, Tokens: 7}, false); err != nil {
		t.Fatal(err)
	}
	if _, over, err := l.Reserve(Count{Requests: 1, Tokens: 50}); over != nil || err != nil {
		t.Fatal(over, err)
	}
	// Killed, in the middle of a line.
	f, err := os.OpenFile(filepath.Join(dir, ledgerFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":9,"settle":{"tok`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l.Close()     //nolint:errcheck // a test
	for range 2 { // the second opening changes nothing
		again, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		again.Close() //nolint:errcheck // a test
		s, err := Read(dir)
		if err != nil || s.Used.Tokens != 57 || s.Used.Requests != 2 || s.Estimated != 1 || s.Reserved != (Count{}) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
}

func TestRaisedLimitsCountAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := SetLimits(dir, Count{Requests: 1}); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, over, err := l.Reserve(Count{Requests: 1}); over != nil || err != nil {
		t.Fatal(over, err)
	}
	if _, over, err := l.Reserve(Count{Requests: 1}); over == nil || err != nil || !strings.Contains(over.Why(), "requests of 1") {
		t.Fatal(over, err)
	}
	if err := SetLimits(dir, Count{Requests: 2}); err != nil {
		t.Fatal(err)
	}
	if _, over, err := l.Reserve(Count{Requests: 1}); over != nil || err != nil {
		t.Fatal(over, err)
	}
}

func TestMeterReadsEveryProvider(t *testing.T) {
	for name, c := range map[string]struct {
		stream        bool
		text          string
		input, output int64
	}{
		"anthropic": {false, `{"content":[],"usage":{"input_tokens":5,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":4}}`, 10, 4},
		"anthropic stream": {true, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: message_delta\n" +
			"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":17}}\r\n\r\n", 25, 17},
		"anthropic gateway": {true, "data: {\"message\":{\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}}\n\ndata: {\"usage\":{\"input_tokens\":9,\"output_tokens\":3}}\n\n", 9, 3},
		"chat":              {false, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, 9, 12},
		"chat stream":       {true, "data: {\"choices\":[{}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12}}\n\ndata: [DONE]\n\n", 9, 12},
		"responses":         {false, `{"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":3},"output_tokens":87}}`, 36, 87},
		"responses stream":  {true, "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":36,\"output_tokens\":87}}}\n\n", 36, 87},
		"gemini":            {false, `{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":8,"thoughtsTokenCount":2,"totalTokenCount":14}}`, 4, 10},
		"gemini stream":     {true, "data: {\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":3}}\r\n\r\ndata: {\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":8}}", 4, 8},
		"gemini array":      {false, `[{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":3}},{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":8}}]`, 4, 8},
		"embeddings":        {false, `{"data":[],"usage":{"prompt_tokens":6,"total_tokens":6}}`, 6, 0},
	} {
		for _, step := range []int{1, 7, len(c.text)} {
			m := Meter{Stream: c.stream}
			for rest := c.text; rest != ""; {
				n := min(step, len(rest))
				m.Write([]byte(rest[:n])) //nolint:errcheck // a test
				rest = rest[n:]
			}
			if used, ok := m.Used(); !ok || used.Input != c.input || used.Output != c.output || used.Tokens != c.input+c.output {
				t.Errorf("%s, %d bytes at a time: %+v, %v", name, step, used, ok)
			}
		}
	}
	m := Meter{}
	m.Write([]byte(`{"error":"no"}`)) //nolint:errcheck // a test
	if _, ok := m.Used(); ok {
		t.Error("usage that nobody reported")
	}
}

func TestWorstBoundsTheOutput(t *testing.T) {
	for body, output := range map[string]int64{
		`{"max_tokens":100}`:                                            100,
		`{"max_completion_tokens":50,"n":3}`:                            150,
		`{"generationConfig":{"maxOutputTokens":9,"candidateCount":2}}`: 18,
		`{}`: noLimit,
	} {
		worst, send, ok := Worst("/v1/messages", []byte(body))
		if !ok || worst.Output != output || string(send) != body || worst.Tokens != worst.Input+worst.Output {
			t.Errorf("%s: %+v, %s, %v", body, worst, send, ok)
		}
	}
	if _, send, ok := Worst("/v1/chat/completions", []byte(`{"stream":true}`)); !ok || string(send) != `{"stream":true,"stream_options":{"include_usage":true}}` {
		t.Errorf("%s, %v", send, ok)
	}
	for _, body := range []string{"", "[]", `{"background":true}`} {
		if _, _, ok := Worst("/v1/responses", []byte(body)); ok {
			t.Errorf("%s can be metered", body)
		}
	}
	for path, want := range map[string]Route{"/v1/messages": Metered, "/v1/messages/count_tokens": Free, "/v1/messages/batches": Unmetered, "/v1/audio/speech": Unmetered} {
		if got := RouteOf("POST", path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
