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
				if err := r.Settle("", Count{Requests: 1, Tokens: n}, false); err != nil {
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
	if err := a.Settle("", Count{Requests: 1, Tokens: 7}, false); err != nil {
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

// A sandbox and its forks together use no more than one of them may, whichever is removed.
func TestForksShareOneLedger(t *testing.T) {
	var dirs [3]string
	var ledgers [3]*Ledger
	for i := range dirs {
		dirs[i] = t.TempDir()
		if i == 0 {
			if err := SetLimits(dirs[0], Count{Tokens: 1000}); err != nil {
				t.Fatal(err)
			}
		} else if err := Share(dirs[i-1], dirs[i]); err != nil { // also a fork of a fork, while both count
			t.Fatal(err)
		}
		var err error
		if ledgers[i], err = Open(dirs[i]); err != nil {
			t.Fatal(err)
		}
		defer ledgers[i].Close()
	}
	var used, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			for range 20 {
				r, over, err := ledgers[i%3].Reserve(Count{Requests: 1, Tokens: 30})
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
				if err := r.Settle("m", Count{Requests: 1, Tokens: n}, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := SetLimits(dirs[0], Count{Tokens: 2000}); err != nil {
		t.Fatal(err)
	}
	if _, over, err := ledgers[0].Reserve(Count{Tokens: 999}); over != nil || err != nil {
		t.Fatal(over, err)
	}
	if _, over, err := ledgers[2].Reserve(Count{Tokens: 30}); over == nil || over.Limit != 1000 || over.Reserved != 999 || err != nil {
		t.Fatalf("%+v, %v", over, err)
	}
	if err := os.RemoveAll(dirs[0]); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs[1:] {
		s, err := Read(dir)
		if err != nil || s.Used.Tokens != used.Load() || s.Models["m"].Tokens != s.Used.Tokens || s.Used.Tokens > 1000 || s.Reserved.Tokens != 999 || s.Limits.Tokens != 1000 || !s.Shared || refused.Load() == 0 {
			t.Errorf("%+v, %v; used %d, refused %d", s, err, used.Load(), refused.Load())
		}
	}
}

// What is open of one sandbox whose proxy was killed counts in full; what is open of its fork stays reserved.
func TestAKilledLedgerSettlesOnlyItsOwn(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	open := func(dir string) *Ledger {
		t.Helper()
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	reserve := func(l *Ledger, n int64) *Reservation {
		t.Helper()
		r, over, err := l.Reserve(Count{Tokens: n})
		if over != nil || err != nil {
			t.Fatal(over, err)
		}
		return r
	}
	killed := open(from)
	reserve(killed, 50)
	if err := Share(from, to); err != nil {
		t.Fatal(err)
	}
	fork := open(to)
	defer fork.Close()
	mine := reserve(fork, 20)
	if over, err := mine.Extend(Count{Sent: 5}); over != nil || err != nil {
		t.Fatal(over, err)
	}
	if _, err := killed.log.WriteAt([]byte(`{"id":9,"reserve":{"tok`), fork.log.size); err != nil { // in the middle of a line
		t.Fatal(err)
	}
	killed.Close() //nolint:errcheck // a test
	again := open(from)
	defer again.Close()
	for _, dir := range []string{from, to} {
		s, err := Read(dir)
		if err != nil || s.Used.Tokens != 50 || s.Estimated != 1 || s.Reserved != (Count{Tokens: 20, Sent: 5}) {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if err := mine.Settle("", Count{Tokens: 7}, false); err != nil {
		t.Fatal(err)
	}
	reserve(again, 1)
	if s, err := Read(to); err != nil || s.Used.Tokens != 57 || s.Reserved != (Count{Tokens: 1}) {
		t.Errorf("%+v, %v", s, err)
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
			m := Meter{Stream: c.stream, InputOnly: name == "embeddings"}
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
		`{"max_tokens":100}`:                                                100,
		`{"max_completion_tokens":50,"n":3}`:                                150,
		`{"max_tokens":50,"best_of":2}`:                                     100,
		`{"generationConfig":{"maxOutputTokens":9,"candidateCount":2}}`:     18,
		`{"generation_config":{"max_output_tokens":9,"candidate_count":2}}`: 18,
		`{"max_tokens":4294967296,"n":65536}`:                               1 << 48,
		`{"max_tokens":null,"generationConfig":null}`:                       noLimit,
		`{}`: noLimit,
	} {
		worst, err := WorstOf("/v1/messages", []byte(body), nil, false)
		if err != nil || worst.Output != output || string(worst.Send) != body || worst.Tokens != worst.Input+worst.Output {
			t.Errorf("%s: %+v, %v", body, worst, err)
		}
	}
	if w, err := WorstOf("/v1/chat/completions", []byte(`{"stream":true}`), nil, false); err != nil || string(w.Send) != `{"stream":true,"stream_options":{"include_usage":true}}` {
		t.Errorf("%s, %v", w.Send, err)
	}
	for path, want := range map[string]Route{"/v1/messages": Metered, "/v1/messages/count_tokens": Free, "/v1/messages/batches": Unmetered, "/v1/audio/speech": Unmetered} {
		if got := RouteOf("POST", path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestBodiesThatCannotBeCountedAreErrors(t *testing.T) {
	for body, why := range map[string]string{
		"":                                    "no JSON",
		"[]":                                  "no JSON object",
		`{"max_tokens":1}{"max_tokens":9}`:    "no JSON",
		`{"background":true}`:                 "background",
		`{"max_tokens":9223372036854775807}`:  "max_tokens is no whole number up to 4294967296",
		`{"max_tokens":92233720368547758070}`: "max_tokens is no whole number",
		`{"max_tokens":4294967297}`:           "max_tokens is no whole number",
		`{"max_tokens":-1}`:                   "max_tokens is no whole number",
		`{"max_tokens":"1"}`:                  "max_tokens is no whole number",
		`{"max_tokens":4096,"n":65537}`:       "n is no whole number up to 65536",
		`{"generationConfig":{"candidateCount":4503599627370496}}`:            "candidateCount is no whole number",
		`{"max_tokens":100000,"MAX_TOKENS":1}`:                                `"MAX_TOKENS" is max_tokens in another case`,
		`{"max_to\u212aens":1}`:                                               "is max_tokens in another case",
		`{"max_tokens":100000,"max_tokens":1}`:                                "max_tokens is there twice",
		`{"max_tokens":100000,"max_\u0074okens":1}`:                           "max_tokens is there twice",
		`{"n":null,"n":2}`:                                                    "n is there twice",
		`{"generationConfig":{},"generation_config":{}}`:                      "generationConfig is there twice",
		`{"GenerationConfig":{"maxOutputTokens":9}}`:                          "is generationConfig in another case",
		`{"generationConfig":{"maxOutputTokens":9,"max_output_tokens":9}}`:    "in generationConfig: maxOutputTokens is there twice",
		`{"generation_config":{"max_output_tokens":9,"Max_Output_Tokens":1}}`: "in generationConfig: the key",
		`{"generationConfig":[]}`:                                             "in generationConfig: it is no JSON object",
		`{"stream":1}`:                                                        "stream is neither true nor false",
	} {
		if worst, err := WorstOf("/v1/responses", []byte(body), nil, false); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %+v, %v; want %q", body, worst, err, why)
		}
	}
}

func TestNegativeAndHugeAmountsExceed(t *testing.T) {
	dir := t.TempDir()
	if err := SetLimits(dir, Count{Tokens: 1000}); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if r, over, err := l.Reserve(Count{Requests: 1, Tokens: 10}); over != nil || err != nil {
		t.Fatal(r, over, err)
	}
	for _, asked := range []Count{{Tokens: -5}, {Output: -5}, {Tokens: 1<<63 - 1}} {
		if _, over, err := l.Reserve(asked); over == nil || err != nil {
			t.Errorf("%+v was reserved, %v", asked, err)
		}
	}
	m := Meter{}
	m.Write([]byte(`{"usage":{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807,"output_tokens":-4}}`)) //nolint:errcheck // a test
	if used, ok := m.Used(); !ok || used.Input < maxReported || used.Output != 0 {
		t.Errorf("%+v, %v", used, ok)
	}
}

// A request that does not fit an unused budget is too large, whatever else is used; only one that would fit finds the
// budget spent.
func TestARequestBeyondAWholeLimitIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	if err := SetLimits(dir, Count{Requests: 2, Tokens: 1000}); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := func(asked Count, tooLarge, spent bool, why string) {
		t.Helper()
		_, over, err := l.Reserve(asked)
		if err != nil || over == nil || over.TooLarge() != tooLarge || over.Spent() != spent || !strings.Contains(over.Why(), why) {
			t.Errorf("%+v: %+v, %v", asked, over, err)
		}
	}
	large := "too large for the budget tokens of 1000: 1001 needed"
	want(Count{Requests: 1, Tokens: 1001}, true, false, large)
	want(Count{Requests: 1, Tokens: -1}, true, false, "too large: the tokens that it needs cannot be counted")
	want(Count{Requests: 1, Output: -1}, true, false, "too large: the output-tokens that it needs cannot be counted") // without a limit
	r, over, err := l.Reserve(Count{Requests: 1, Tokens: 600})
	if over != nil || err != nil {
		t.Fatal(over, err)
	}
	want(Count{Requests: 1, Tokens: 500}, false, false, "600 reserved by open requests") // room once the other is over
	if err := r.Settle("", Count{Requests: 2, Tokens: 600}, false); err != nil {
		t.Fatal(err)
	}
	want(Count{Requests: 0, Tokens: 500}, false, true, "the budget tokens of 1000 has no room")
	want(Count{Requests: 1, Tokens: 5}, false, true, "the budget requests of 2 has no room")
	want(Count{Requests: 1, Tokens: 1001}, true, false, large) // no more requests make room for it
}

// A body of unknown length is counted in parts, and fits only as a whole.
func TestAnExtendedReservationIsJudgedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	if err := SetLimits(dir, Count{Sent: 1000}); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, over, err := l.Reserve(Count{Requests: 1})
	if over != nil || err != nil {
		t.Fatal(over, err)
	}
	for _, part := range []int64{700, 300} {
		if over, err := r.Extend(Count{Sent: part}); over != nil || err != nil {
			t.Fatal(over, err)
		}
	}
	if over, err := r.Extend(Count{Sent: 1}); err != nil || over == nil || !over.TooLarge() || over.Asked != 1001 || over.Reserved != 0 {
		t.Errorf("%+v, %v", over, err)
	}
	if err := SetLimits(dir, Count{Sent: 1100}); err != nil {
		t.Fatal(err)
	}
	if over, err := r.Extend(Count{Sent: 100}); over != nil || err != nil { // the raised limit counts
		t.Error(over, err)
	}
	if s, err := Read(dir); err != nil || r.Worst().Sent != 1100 {
		t.Errorf("%+v, %v; %+v reserved", s, err, r.Worst())
	}
}
