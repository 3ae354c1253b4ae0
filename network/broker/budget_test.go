package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
)

// A model is a stand-in for a provider, which counts what it reports.
type model struct {
	input, output, calls atomic.Int64
	hold                 chan struct{} // a stream waits for it in its middle, unless nil
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Stream bool  `json:"stream"`
		Max    int64 `json:"max_tokens"`
		Fail   bool  `json:"fail"`
		Cut    bool  `json:"cut"`
	}
	_ = json.NewDecoder(r.Body).Decode(&asked) // the zero value
	if asked.Fail {
		http.Error(w, `{"error":"overloaded"}`, http.StatusServiceUnavailable)
		return
	}
	n := m.calls.Add(1)
	input, output := 3+n%5, min(1+n%17, asked.Max)
	m.input.Add(input)
	m.output.Add(output)
	switch {
	case strings.HasSuffix(r.URL.Path, "/messages") && asked.Stream:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":%d,\"output_tokens\":1}}}\n\n", input)
		w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // a test
		if m.hold != nil {
			<-m.hold
		}
		if asked.Cut {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "event: message_delta\ndata: {\"usage\":{\"output_tokens\":%d}}\n\n", output)
	case strings.HasSuffix(r.URL.Path, "/messages"):
		fmt.Fprintf(w, `{"usage":{"input_tokens":%d,"output_tokens":%d}}`, input, output)
	case strings.HasSuffix(r.URL.Path, "/chat/completions") && asked.Stream:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", input, output)
	case strings.HasSuffix(r.URL.Path, "/responses"):
		fmt.Fprintf(w, `{"usage":{"input_tokens":%d,"output_tokens":%d}}`, input, output)
	default:
		fmt.Fprintf(w, `{"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d}}`, input, output)
	}
}

func TestBudgetIsExactUnderParallelCalls(t *testing.T) {
	const limit = 6000
	var dir string
	m := &model{}
	w := newWorld(t, "POST "+serverName, m.ServeHTTP, withBudget(t, budget.Count{Tokens: limit}, &dir))
	c := w.client(true)
	routes := []string{"/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1beta/models/m:generateContent"}
	var refused atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for k := range 10 {
				path := routes[(i+k)%len(routes)]
				body := fmt.Sprintf(`{"max_tokens":20,"stream":%v}`, k%2 == 0 && !strings.HasSuffix(path, "/responses"))
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				response, err := c.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				text, _ := io.ReadAll(response.Body)
				response.Body.Close() //nolint:errcheck // a test
				switch response.StatusCode {
				case http.StatusOK:
				case http.StatusTooManyRequests:
					refused.Add(1)
					if !strings.Contains(string(text), "snapfs budget raise fix tokens +N") || response.Header.Get("X-Should-Retry") == "" { // true while others are open
						t.Errorf("%s", text)
					}
				default:
					t.Errorf("%s: %s", response.Status, text)
				}
			}
		})
	}
	all.Wait()
	s := settled(t, dir)
	if s.Used.Input != m.input.Load() || s.Used.Output != m.output.Load() || s.Used.Tokens > limit || s.Used.Requests != m.calls.Load() || s.Estimated != 0 || refused.Load() == 0 {
		t.Errorf("%+v; the server counted %d + %d in %d calls; refused %d", s, m.input.Load(), m.output.Load(), m.calls.Load(), refused.Load())
	}
}

// A budget of money counts what the reported tokens cost, and refuses what it cannot count.
func TestMoneyIsCountedByPrices(t *testing.T) {
	var dir string
	m := &model{}
	counted := withBudget(t, budget.Count{Money: 1500}, &dir)
	w := newWorld(t, "POST "+serverName, m.ServeHTTP, func(o *Options) {
		counted(o)
		o.Config.Prices = []budget.Price{{Model: "m-*", Input: 2_000_000, Cached: -1, Written: -1, Output: 10_000_000}}
	})
	c := w.client(true)
	ask := func(body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+"/v1/messages", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if status, text := ask(`{"model":"other","max_tokens":20}`); status != http.StatusBadRequest || !strings.Contains(text, `no section [prices] names the model`) {
		t.Errorf("%d %s", status, text)
	}
	var status int
	var text string
	for status = http.StatusOK; status == http.StatusOK; {
		status, text = ask(`{"model":"m-1","max_tokens":20}`)
	}
	if status != http.StatusTooManyRequests || !strings.Contains(text, "the budget money of 0.0015 has no room") || !strings.Contains(text, "snapfs budget raise fix money +N") {
		t.Errorf("%d %s", status, text)
	}
	s := settled(t, dir)
	if cost := 2*m.input.Load() + 10*m.output.Load(); s.Used.Money != cost || cost > 1500 || cost < 1000 || s.Models["m-1"].Money != cost {
		t.Errorf("%+v; the server counted %d + %d", s, m.input.Load(), m.output.Load())
	}
}

// Who hangs up a stream that has no maximum gets no more than is counted.
func TestAStreamWithoutAMaximumCountsWhatItSent(t *testing.T) {
	var dir string
	const sent = 64 << 10
	w := newWorld(t, "POST "+serverName, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "data: {\"choices\":[]}\n\n"+strings.Repeat("data: {\"x\":1}\n\n", sent/15))
		panic(http.ErrAbortHandler) // before the usage
	}, withBudget(t, budget.Count{Tokens: 1_000_000}, &dir))
	c := w.client(true)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+"/v1/chat/completions", strings.NewReader(`{"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close() //nolint:errcheck // a test
	if s := settled(t, dir); s.Used.Output < sent/4 || s.Estimated != 1 {
		t.Errorf("%+v", s)
	}
	if response, text := w.do(c, http.MethodPost, origin+"/v1beta/models/m:generateContent?fields=candidates", "{}"); response.StatusCode != http.StatusBadRequest || !strings.Contains(text, "may leave out the tokens") {
		t.Errorf("%s %s", response.Status, text)
	}
}

// settled returns the ledger once no reservation is open.
func settled(t *testing.T, dir string) budget.State {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		s, err := budget.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if s.Reserved == (budget.Count{}) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v is never settled", s)
		}
		time.Sleep(time.Millisecond) // polls a file
	}
}

// TestTokensOfAbandonedStreamsCount: a client leaves a stream in its middle, and the ledger is exact: it ends the request,
// or the whole connection.
func TestTokensOfAbandonedStreamsCount(t *testing.T) {
	for _, way := range []string{"request, HTTP/1", "request, HTTP/2", "connection, HTTP/1", "connection, HTTP/2"} {
		t.Run(way, func(t *testing.T) {
			var dir string
			m := &model{hold: make(chan struct{})}
			w := newWorld(t, "POST "+serverName, m.ServeHTTP, withBudget(t, budget.Count{Tokens: 1000}, &dir))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, origin+"/v1/messages", strings.NewReader(`{"max_tokens":20,"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			c := w.client(strings.HasSuffix(way, "HTTP/2"))
			transport := c.Transport.(*http.Transport) //nolint:errcheck,forcetypeassert // a test
			dial := transport.DialContext
			var conn net.Conn
			transport.DialContext = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
				conn, err = dial(ctx, network, addr)
				return conn, err
			}
			response, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(response.Body, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(way, "request") {
				cancel()
			}
			response.Body.Close() //nolint:errcheck // a test
			conn.Close()          //nolint:errcheck // a test
			// The proxy closes its connection to the server too soon, or it waits for the server.
			select {
			case <-w.served:
				t.Error("the proxy did not wait for the end of the stream")
			case <-time.After(100 * time.Millisecond):
			}
			close(m.hold)
			if s := settled(t, dir); s.Used.Input != m.input.Load() || s.Used.Output != m.output.Load() || s.Estimated != 0 {
				t.Errorf("%+v; the server counted %d + %d", s, m.input.Load(), m.output.Load())
			}
		})
	}
}

// The first event of a stream reports one token, and nobody knows how many followed it.
func TestStreamsThatAreCutCountAsTheirWorstCase(t *testing.T) {
	for _, goes := range []bool{false, true} {
		var dir string
		m := &model{hold: make(chan struct{})}
		w := newWorld(t, "POST "+serverName, m.ServeHTTP, withBudget(t, budget.Count{Tokens: 1000}, &dir))
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, origin+"/v1/messages", strings.NewReader(`{"max_tokens":20,"stream":true,"cut":true}`))
		if err != nil {
			t.Fatal(err)
		}
		response, err := w.client(true).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(response.Body, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if goes { // the client
			cancel()
		}
		close(m.hold)
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close() //nolint:errcheck // a test
		if s := settled(t, dir); s.Used.Output != 20 || s.Used.Input < m.input.Load() || s.Used.Tokens != s.Used.Input+20 || s.Estimated != 1 {
			t.Errorf("%+v; the client goes: %v", s, goes)
		}
		cancel()
	}
}

func TestBudgetReadsProvidersOnEveryPort(t *testing.T) {
	var dir string
	w := newWorld(t, "POST *."+serverName, (&model{}).ServeHTTP, withBudget(t, budget.Count{Tokens: 1000}, &dir))
	for _, c := range []struct {
		name  string
		port  uint16
		takes bool
	}{
		{"api.openai.com", 443, true},
		{"us.api.openai.com", 443, true},
		{"US.api.openai.com.", 9443, true},
		{"api.anthropic.com", 8000, true},
		{serverName, 5000, true},
		{"notapi.openai.com", 443, false},
		{"openai.com", 443, false},
		{"", 443, false},
	} {
		if got := w.broker.Takes(c.name, c.port); got != c.takes {
			t.Errorf("%s:%d: %v", c.name, c.port, got)
		}
	}
	// The certificate of httptest is for names below the server's, too.
	conn := w.dial("eu."+serverName, 9443)
	client := &http.Client{Transport: transportOn(conn, w)}
	if response, body := w.do(client, "POST", "https://eu."+serverName+":9443/v1/messages", `{"max_tokens":20}`); response.StatusCode != http.StatusOK {
		t.Errorf("%s %s", response.Status, body)
	}
	if s := settled(t, dir); s.Used.Tokens == 0 {
		t.Errorf("%+v", s)
	}
}

func TestBudgetRefusesWhatItCannotCount(t *testing.T) {
	var dir string
	m := &model{}
	w := newWorld(t, "POST,GET "+serverName, m.ServeHTTP, withBudget(t, budget.Count{Tokens: 1000}, &dir))
	c := w.client(true)
	for name, q := range map[string]struct {
		method, path, body string
		status             int
	}{
		"no usage":     {"POST", "/v1/audio/speech", "{}", http.StatusForbidden},
		"batch":        {"POST", "/v1/messages/batches", "{}", http.StatusForbidden},
		"no JSON":      {"POST", "/v1/messages", "x", http.StatusBadRequest},
		"background":   {"POST", "/v1/responses", `{"background":true}`, http.StatusBadRequest},
		"overflow":     {"POST", "/v1/messages", `{"max_tokens":9223372036854775807}`, http.StatusBadRequest},
		"key twice":    {"POST", "/v1/messages", `{"max_tokens":100000,"MAX_TOKENS":1}`, http.StatusBadRequest},
		"too much":     {"POST", "/v1/messages", `{"max_tokens":100000}`, http.StatusTooManyRequests},
		"failed":       {"POST", "/v1/messages", `{"max_tokens":10,"fail":true}`, http.StatusServiceUnavailable},
		"free":         {"GET", "/v1/models", "", http.StatusOK},
		"count tokens": {"POST", "/v1/messages/count_tokens", "{}", http.StatusOK},
	} {
		if response, body := w.do(c, q.method, origin+q.path, q.body); response.StatusCode != q.status {
			t.Errorf("%s: %s %s", name, response.Status, body)
		}
	}
	if s := settled(t, dir); s.Used.Tokens != 0 || s.Used.Requests != 3 {
		t.Errorf("%+v", s)
	}
}

func TestBudgetBoundsRequestsAndBytes(t *testing.T) {
	var dir string
	w := newWorld(t, "POST,GET "+serverName, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
		withBudget(t, budget.Count{Requests: 4, Sent: 1000}, &dir))
	c := w.client(true)
	want := func(body io.Reader, status int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+"/x", body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close() //nolint:errcheck // a test
		if response.StatusCode != status {
			t.Errorf("%s; want %d", response.Status, status)
		}
	}
	want(strings.NewReader(strings.Repeat("a", 600)), http.StatusOK)
	want(strings.NewReader(strings.Repeat("a", 600)), http.StatusTooManyRequests)
	want(io.MultiReader(strings.NewReader(strings.Repeat("a", 600))), http.StatusTooManyRequests) // of unknown length
	want(io.MultiReader(strings.NewReader(strings.Repeat("a", 200))), http.StatusOK)
	if s := settled(t, dir); s.Used.Sent < 800 || s.Used.Sent > 1000 {
		t.Errorf("%+v", s)
	}
	want(http.NoBody, http.StatusOK)
	want(http.NoBody, http.StatusTooManyRequests)
	if err := budget.SetLimits(dir, budget.Count{Requests: 5, Sent: 1000}); err != nil {
		t.Fatal(err)
	}
	want(http.NoBody, http.StatusOK)
}

// Only a budget that stays without room when all open requests are over counts as spent, so that the sandbox is
// paused. Whether to try again is in the answer.
func TestOnlyASpentBudgetPauses(t *testing.T) {
	for _, pauses := range []bool{false, true} {
		var dir string
		come, answer := make(chan struct{}), make(chan struct{})
		w := newWorld(t, "POST "+serverName, func(w http.ResponseWriter, _ *http.Request) {
			come <- struct{}{}
			<-answer
			fmt.Fprint(w, `{"content":[],"usage":{"input_tokens":50,"output_tokens":50}}`)
		}, withBudget(t, budget.Count{Tokens: 100}, &dir))
		w.broker.options.Config.Pauses = pauses
		c := w.client(true)
		ask := func() *http.Response {
			response, err := c.Post(origin+"/v1/messages", "application/json", strings.NewReader(`{"max_tokens":60}`))
			if err != nil {
				t.Error(err)
				return &http.Response{}
			}
			_, _ = io.Copy(io.Discard, response.Body) // a refusal, or the usage
			response.Body.Close()                     //nolint:errcheck // a test
			return response
		}
		var first sync.WaitGroup
		first.Go(func() { ask() })
		<-come
		pending := ask()
		close(answer)
		first.Wait()
		settled(t, dir)
		spent := ask()
		w.mu.Lock()
		var events []*network.SpentLimit
		for _, ev := range w.events {
			if !ev.Allowed {
				events = append(events, ev.Spent)
			}
		}
		w.mu.Unlock()
		if len(events) != 2 || events[0] != nil || events[1] == nil || *events[1] != (network.SpentLimit{Limit: "tokens", Value: 100}) {
			t.Errorf("%v", events)
		}
		if pending.StatusCode != http.StatusTooManyRequests || pending.Header.Get("X-Should-Retry") != "true" || pending.Header.Get("Retry-After") != "1" {
			t.Errorf("while another request is open: %s %v", pending.Status, pending.Header)
		}
		if spent.StatusCode != http.StatusTooManyRequests || spent.Header.Get("X-Should-Retry") != fmt.Sprint(pauses) || (spent.Header.Get("Retry-After") != "") != pauses {
			t.Errorf("spent, pauses %v: %s %v", pauses, spent.Status, spent.Header)
		}
	}
}

// A request that does not fit the unused budget pauses nothing, and its client must not repeat it.
func TestARequestThatNeverFitsPausesNothing(t *testing.T) {
	var dir string
	m := &model{}
	w := newWorld(t, "POST "+serverName, m.ServeHTTP, withBudget(t, budget.Count{Tokens: 50_000, Sent: 1000}, &dir))
	w.broker.options.Config.Pauses = true
	c := w.client(true)
	for what, body := range map[string]io.Reader{
		"tokens of 50000: 64007 needed": strings.NewReader(`{"max_tokens":64000}`),
		"bytes-sent of 1000:":           io.MultiReader(strings.NewReader(strings.Repeat("a", 600)), strings.NewReader(strings.Repeat("a", 600))), // of unknown length
	} {
		path := "/v1/messages"
		if strings.HasPrefix(what, "bytes") {
			path = "/v1/messages/count_tokens"
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+path, body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close() //nolint:errcheck // a test
		if err != nil || response.StatusCode != http.StatusTooManyRequests || response.Header.Get("X-Should-Retry") != "false" || response.Header.Get("Retry-After") != "" {
			t.Errorf("%s: %s %v %v", what, response.Status, response.Header, err)
		}
		if !strings.Contains(string(text), "too large for the budget "+what) || !strings.Contains(string(text), "snapfs budget raise fix ") {
			t.Errorf("%s: %s", what, text)
		}
		if ev := w.last(); ev.Allowed || ev.Spent != nil {
			t.Errorf("%s: %+v", what, ev)
		}
	}
	if response, text := w.do(c, "POST", origin+"/v1/messages", `{"max_tokens":20}`); response.StatusCode != http.StatusOK {
		t.Errorf("%s %s", response.Status, text)
	}
}
