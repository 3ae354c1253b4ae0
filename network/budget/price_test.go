package budget

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

var prices = []Price{
	{Model: "claude-*", Input: 3_000_000, Cached: 300_000, Written: 3_750_000, Output: 15_000_000},
	{Model: "claude-opus-4*", Input: 15_000_000, Cached: -1, Written: -1, Output: 75_000_000},
	{Model: "gpt", Input: 1, Cached: 0, Written: -1, Output: 0},
}

func TestTheLongestNameGivesThePrice(t *testing.T) {
	for model, want := range map[string]string{"claude-opus-4-1": "claude-opus-4*", "claude-x": "claude-*", "gpt": "gpt", "gpt-5": "", "": "", "Claude-x": ""} {
		got := ""
		if p := priceOf(prices, model); p != nil {
			got = p.Model
		}
		if got != want {
			t.Errorf("%q: %q, not %q", model, got, want)
		}
	}
}

func TestCostsAreRoundedUpAndBounded(t *testing.T) {
	claude, gpt := &prices[0], &prices[2]
	for i, c := range []struct {
		price       *Price
		count       Count
		cost, worst int64
	}{
		{claude, Count{Input: 1_000_000, Output: 1_000_000}, 18_000_000, 18_750_000},
		{claude, Count{Input: 1_000_000, Cached: 400_000, Written: 100_000}, 500_000*3 + 400_000*3/10 + 100_000*375/100, 3_750_000},
		{claude, Count{Input: 10, Cached: 50, Written: 50}, 3, 38},     // a server that reports more cached than there was
		{claude, Count{Input: 10, Cached: -5, Written: -5}, 30, 38},    // or less than nothing
		{&prices[1], Count{Input: 1000, Cached: 1000}, 15_000, 15_000}, // no price of its own
		{gpt, Count{Input: 1}, 1, 1},                                         // a millionth of a millionth
		{gpt, Count{Input: 1, Cached: 1}, 0, 1},                              // free
		{claude, Count{Output: math.MaxInt64}, math.MaxInt64, math.MaxInt64}, // too large
		{nil, Count{Input: 1000}, 0, 0},
	} {
		if cost, worst := c.price.Cost(c.count), c.price.Worst(c.count); cost != c.cost || worst != c.worst {
			t.Errorf("%d: %d and at worst %d, not %d and %d", i, cost, worst, c.cost, c.worst)
		}
	}
}

func TestEveryProvidersCachedTokensAreRead(t *testing.T) {
	for text, want := range map[string]Count{
		`{"usage":{"input_tokens":5,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":4}}`:                   {Input: 10, Output: 4, Tokens: 14, Cached: 3, Written: 2},
		`{"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":30},"output_tokens":7}}`:                                  {Input: 36, Output: 7, Tokens: 43, Cached: 30},
		`{"usage":{"prompt_tokens":36,"prompt_tokens_details":{"cached_tokens":6},"prompt_cache_hit_tokens":6,"completion_tokens":1}}`: {Input: 36, Output: 1, Tokens: 37, Cached: 6},
		`{"usageMetadata":{"promptTokenCount":9,"cachedContentTokenCount":8,"candidatesTokenCount":1}}`:                                {Input: 9, Output: 1, Tokens: 10, Cached: 8},
	} {
		var m Meter
		m.Write([]byte(text)) //nolint:errcheck // it never fails
		if used, ok := m.Used(); !ok || used != want {
			t.Errorf("%s: %+v", text, used)
		}
	}
}

func TestARequestNamesItsModel(t *testing.T) {
	for _, c := range []struct{ path, body, model, wrong string }{
		{"/v1/messages", `{"model":"claude-x","max_tokens":1}`, "claude-x", ""},
		{"/v1beta/models/gpt:generateContent", `{}`, "gpt", ""},
		{"/v1beta/models/gpt:generateContent", `{"model":"models/gpt"}`, "gpt", ""},
		{"/v1beta/models/gpt:generateContent", `{"model":"claude-x"}`, "", `names the models "gpt" and "claude-x"`},
		{"/v1beta/tunedModels/gpt:generateContent", `{}`, "gpt", ""},
		{"/engines/gpt/chat/completions", `{}`, "gpt", ""},
		{"/v1/messages", `{"model":"gpt","service_tier":"auto","speed":null,"tools":[{"name":"x"}]}`, "gpt", ""},
		{"/v1/messages", `{"model":"gpt","service_tier":"priority"}`, "", "service_tier may make the model cost more"},
		{"/v1/messages", `{"model":"gpt","speed":"fast"}`, "", "speed may make the model cost more"},
		{"/v1/responses", `{"model":"gpt","tools":[{"type":"image_generation","model":"claude-x"}]}`, "", "tools may make the model cost more"},
		{"/openai/deployments/gpt/chat/completions", `{}`, "gpt", ""},
		{"/v1/messages", `{"model":"other"}`, "other", "no section [prices] names the model \"other\""},
		{"/v1/messages", `{}`, "", "no section [prices] names the model \"\""},
		{"/v1/messages", `{"model":"gpt","model":"claude-x"}`, "", "model is there twice"},
		{"/v1/messages", `{"Model":"gpt"}`, "", "in another case"},
		{"/v1/messages", `{"model":7}`, "", "model is no text"},
		{"/v1/messages", `{"model":"` + strings.Repeat("x", 201) + `"}`, "", "model is no text"},
		{"/v1/chat/completions", `{"model":"gpt","models":["gpt","claude-x"]}`, "gpt", "chooses between several models"},
	} {
		w, err := WorstOf(c.path, []byte(c.body), prices, true)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s %s: %v", c.path, c.body, err)
			}
			continue
		}
		if err != nil || w.Model != c.model || w.Money <= 0 {
			t.Errorf("%s %s: %+v, %v", c.path, c.body, w, err)
		}
	}
}

func TestInputIsBoundedByWhatTheRequestCannotHold(t *testing.T) {
	for body, input := range map[string]int64{
		`{"x":"abc"}`: int64(len(`{"x":"abc"}`))/3 + 1,
		`{"x":"日本"}`:  8/3 + 6 + 1,
		`{"previous_response_id":"r","input":"x"}`:                      storedInput,
		`{"previous_response_id":null,"input":"x"}`:                     int64(len(`{"previous_response_id":null,"input":"x"}`))/3 + 1,
		`{"file\u005fid":"f"}`:                                          storedInput,
		`{"input":"\u003c \"file_id\": 1"}`:                             int64(len(`{"input":"\u003c \"file_id\": 1"}`))/3 + 1,
		`{"prompt":{"id":"p"}}`:                                         storedInput,
		`{"input":[{"content":[{"type":"input_file","file_id":"f"}]}]}`: storedInput,
	} {
		w, err := WorstOf("/v1/responses", []byte(body), nil, false)
		if err != nil || w.Input != input || !w.Open {
			t.Errorf("%s: %+v, %v; want %d", body, w, err, input)
		}
	}
}

func TestAnswersWithoutUsageAreKnownByTheQuery(t *testing.T) {
	for query, want := range map[string]string{
		"": "", "key=x&alt=sse": "", "alt=json": "", "fields=candidates": "fields", "$fields=x": "$fields", "%66ields=x": "fields", "Fields=x": "Fields", "alt=sse&alt=proto": "alt",
		"callback=f": "callback", "%": "?",
	} {
		if got := HidesUsage(query); got != want {
			t.Errorf("%s: %q, not %q", query, got, want)
		}
	}
	for _, text := range []string{`{"usageMetadata":{}}`, `{"usageMetadata":{"promptTokenCount":4}}`, `{"usage":{"output_tokens":4}}`, `{"usageMetadata":{"cachedContentTokenCount":0}}`} {
		var m Meter
		m.Write([]byte(text)) //nolint:errcheck // it never fails
		if used, ok := m.Used(); ok {
			t.Errorf("%s: %+v", text, used)
		}
	}
}

// The requests choose the names, so their number is bounded.
func TestUseIsCountedByModel(t *testing.T) {
	dir := t.TempDir()
	for opened := range 2 {
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i := range maxModels + 5 {
			r, over, err := l.Reserve(Count{Requests: 1})
			if err != nil || over != nil {
				t.Fatal(over, err)
			}
			if err := r.Settle(fmt.Sprint("m", i), Count{Requests: 1, Input: 2, Money: 3}, false); err != nil {
				t.Fatal(err)
			}
		}
		l.Close() //nolint:errcheck // a test
		times := int64(opened + 1)
		s, err := Read(dir)
		if err != nil || len(s.Models) != maxModels+1 || s.Models["m0"] != (Count{Requests: times, Input: 2 * times, Money: 3 * times}) || s.Models[otherModels].Requests != 5*times {
			t.Fatalf("%+v, %v", s, err)
		}
	}
}
