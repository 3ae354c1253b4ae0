package budget

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A Route is what a request of a model's provider costs.
type Route int

// The kinds of routes.
const (
	// Free costs no tokens: everything that is read with GET, and counting tokens.
	Free Route = iota
	// Metered reports its tokens in its response.
	Metered
	// Unmetered may cost tokens that nobody reports.
	Unmetered
)

// Providers are the names of servers whose requests cost tokens.
func Providers() []string {
	return []string{"api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "api.mistral.ai", "api.groq.com", "api.deepseek.com", "openrouter.ai", "api.x.ai"}
}

// RouteOf returns the route of a request to a provider, by its method and its path in the form of httprule.Clean.
func RouteOf(method, path string) Route {
	switch {
	case method != "POST":
		if method == "GET" || method == "HEAD" || method == "OPTIONS" {
			return Free
		}
		return Unmetered
	case ends(path, "/messages/count_tokens", ":countTokens", "/responses/input_tokens"):
		return Free
	case ends(path, "/v1/messages", "/chat/completions", "/v1/completions", "/responses", "/embeddings", ":generateContent", ":streamGenerateContent"):
		return Metered
	}
	return Unmetered
}

func ends(path string, ways ...string) bool {
	for _, w := range ways {
		if strings.HasSuffix(path, w) {
			return true
		}
	}
	return false
}

// noLimit is the output that is reserved for a request that names no maximum.
const noLimit = 4096

// A request is the part of a provider's request that bounds its output.
type request struct {
	MaxTokens           int64 `json:"max_tokens"`
	MaxCompletionTokens int64 `json:"max_completion_tokens"`
	MaxOutputTokens     int64 `json:"max_output_tokens"`
	N                   int64 `json:"n"`
	GenerationConfig    struct {
		MaxOutputTokens int64 `json:"maxOutputTokens"`
		CandidateCount  int64 `json:"candidateCount"`
	} `json:"generationConfig"`
	Stream        bool            `json:"stream"`
	StreamOptions json.RawMessage `json:"stream_options"`
	Background    bool            `json:"background"`
}

// Worst returns the most that a metered request is expected to use, and the body to send. The body differs for a
// stream of OpenAI's Chat, which reports its usage only when asked to. It returns false for a body that cannot be
// metered: no JSON, or one that runs in the background.
func Worst(path string, body []byte) (worst Count, send []byte, ok bool) {
	var r request
	if json.Unmarshal(body, &r) != nil || r.Background {
		return Count{}, nil, false
	}
	output := max(r.MaxTokens, r.MaxCompletionTokens, r.MaxOutputTokens, r.GenerationConfig.MaxOutputTokens)
	switch {
	case ends(path, "/embeddings"):
		output = 0
	case output <= 0:
		output = noLimit
	}
	output *= max(1, r.N, r.GenerationConfig.CandidateCount)
	input := int64(len(body))/3 + 1
	worst = Count{Requests: 1, Sent: int64(len(body)), Input: input, Output: output, Tokens: input + output}
	if r.Stream && ends(path, "/completions") {
		body = withUsage(body)
	}
	return worst, body, true
}

// withUsage returns the request of a stream with the option by which its last event reports the usage.
func withUsage(body []byte) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil {
		return body
	}
	options := map[string]json.RawMessage{}
	if json.Unmarshal(all["stream_options"], &options) != nil || options == nil {
		options = map[string]json.RawMessage{}
	}
	options["include_usage"] = json.RawMessage("true")
	text, err := json.Marshal(options)
	if err != nil {
		return body
	}
	all["stream_options"] = text
	if text, err = json.Marshal(all); err != nil {
		return body
	}
	return text
}

// maxEvent bounds an event of a stream, and a response that is no stream, of which the meter keeps a copy.
const maxEvent = 16 << 20

// A Meter reads a response while it passes and finds the usage in it. The zero value reads JSON.
type Meter struct {
	// Stream is set for a response of server-sent events.
	Stream bool
	buf    []byte
	lost   bool // the buffer would have been too large
	seen   bool
	used   Count
}

// Write reads the next bytes of a response. It never fails.
func (m *Meter) Write(p []byte) (int, error) {
	if m.lost {
		return len(p), nil
	}
	m.buf = append(m.buf, p...)
	for m.Stream {
		i := bytes.IndexByte(m.buf, '\n')
		if i < 0 {
			break
		}
		if data, ok := bytes.CutPrefix(m.buf[:i], []byte("data:")); ok {
			m.read(data)
		}
		m.buf = m.buf[i+1:]
	}
	if len(m.buf) > maxEvent {
		m.buf, m.lost = nil, true
	}
	return len(p), nil
}

// Used returns the tokens that the response reported; false if it reported none.
func (m *Meter) Used() (c Count, ok bool) {
	if !m.lost && len(m.buf) > 0 {
		m.read(bytes.TrimPrefix(m.buf, []byte("data:")))
		m.buf = nil
	}
	return m.used, m.seen
}

// A reply is every form in which the providers report usage.
type reply struct {
	Usage         *usage `json:"usage"`
	UsageMetadata *usage `json:"usageMetadata"`
	Message       *struct {
		Usage *usage `json:"usage"`
	} `json:"message"`
	Response *struct {
		Usage         *usage `json:"usage"`
		UsageMetadata *usage `json:"usageMetadata"`
	} `json:"response"`
	XGroq *struct {
		Usage *usage `json:"usage"`
	} `json:"x_groq"`
}

type usage struct {
	// Anthropic, OpenAI Responses.
	InputTokens   int64 `json:"input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	OutputTokens  int64 `json:"output_tokens"`
	// OpenAI Chat, embeddings.
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	// Gemini.
	PromptCount     int64 `json:"promptTokenCount"`
	ToolPromptCount int64 `json:"toolUsePromptTokenCount"`
	CandidatesCount int64 `json:"candidatesTokenCount"`
	ThoughtsCount   int64 `json:"thoughtsTokenCount"`
}

// read reads one JSON value of a response.
func (m *Meter) read(text []byte) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || !bytes.Contains(text, []byte("sage")) {
		return
	}
	if text[0] == '[' { // a stream of Gemini without events
		var all []reply
		if json.Unmarshal(text, &all) == nil {
			for _, r := range all {
				m.add(r)
			}
		}
		return
	}
	var r reply
	if json.Unmarshal(text, &r) == nil {
		m.add(r)
	}
}

// add keeps the maximum of each amount: reports in one stream are cumulative, and some are zero.
func (m *Meter) add(r reply) {
	all := []*usage{r.Usage, r.UsageMetadata}
	if r.Message != nil {
		all = append(all, r.Message.Usage)
	}
	if r.Response != nil {
		all = append(all, r.Response.Usage, r.Response.UsageMetadata)
	}
	if r.XGroq != nil {
		all = append(all, r.XGroq.Usage)
	}
	for _, u := range all {
		if u == nil {
			continue
		}
		m.seen = true
		m.used.Input = max(m.used.Input, max(0, u.InputTokens)+max(0, u.CacheCreation)+max(0, u.CacheRead)+max(0, u.Prompt)+max(0, u.PromptCount)+max(0, u.ToolPromptCount))
		m.used.Output = max(m.used.Output, max(0, u.OutputTokens)+max(0, u.Completion)+max(0, u.CandidatesCount)+max(0, u.ThoughtsCount))
	}
	m.used.Tokens = m.used.Input + m.used.Output
}
