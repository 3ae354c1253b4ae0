package budget

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// A Route says whether a request to the provider of an AI model costs tokens, and whether the response
// reports them.
type Route int

// The kinds of requests to a provider of AI models, by their cost in tokens.
const (
	// Free is a request that costs no tokens: everything that is read with GET, and counting tokens.
	Free Route = iota
	// Metered is a request to an AI model whose response reports the tokens used.
	Metered
	// Unmetered is a request that may cost tokens which nobody reports. With a limit on tokens it is refused.
	Unmetered
)

// Providers returns the host names of the known providers of AI models, whose requests cost tokens, such as
// "api.openai.com".
func Providers() []string {
	return []string{"api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "api.mistral.ai", "api.groq.com", "api.deepseek.com", "openrouter.ai", "api.x.ai"}
}

// RouteOf returns whether and how a request to a provider of AI models costs tokens, by its method and its
// path in the form of httprule.Clean.
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

// maxEvent is the longest event of a stream, or other response, in bytes, that the meter buffers to find the
// tokens used. In a longer one it finds none.
const maxEvent = 16 << 20

// A Meter is a writer that gets a copy of a response of an AI model and finds the reported number of tokens
// in it. The zero value reads JSON.
type Meter struct {
	// Stream is set for a response of server-sent events.
	Stream bool
	// InputOnly is set for a response that reports no output tokens, as to embeddings.
	InputOnly bool
	// Size is the number of bytes of the response so far.
	Size int64
	buf  []byte
	lost bool // the buffer would have been too large
	in   bool // input tokens were reported
	out  bool // output tokens were reported
	used Count
}

// Write takes the next bytes of an AI model's response and searches them for the number of tokens used. It
// never fails.
func (m *Meter) Write(p []byte) (int, error) {
	m.Size += int64(len(p))
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

// Used returns the tokens that the response reported. ok is false if it reported not both input and output, or had a
// part too large to read. The caller knows whether the response was whole: one that was cut has reported only a part.
func (m *Meter) Used() (c Count, ok bool) {
	if !m.lost && len(m.buf) > 0 {
		m.read(bytes.TrimPrefix(m.buf, []byte("data:")))
		m.buf = nil
	}
	return m.used, m.in && (m.out || m.InputOnly) && !m.lost
}

// A reply is the part of a response's JSON in which providers report the tokens used, in all of their forms.
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
	InputTokens   *int64      `json:"input_tokens"`
	CacheCreation *int64      `json:"cache_creation_input_tokens"`
	CacheRead     *int64      `json:"cache_read_input_tokens"`
	OutputTokens  *int64      `json:"output_tokens"`
	InputDetails  *cachedPart `json:"input_tokens_details"`
	// OpenAI Chat, embeddings. DeepSeek has the cached part under a name of its own.
	Prompt        *int64      `json:"prompt_tokens"`
	Completion    *int64      `json:"completion_tokens"`
	PromptDetails *cachedPart `json:"prompt_tokens_details"`
	CacheHit      *int64      `json:"prompt_cache_hit_tokens"`
	// Gemini.
	PromptCount     *int64 `json:"promptTokenCount"`
	ToolPromptCount *int64 `json:"toolUsePromptTokenCount"`
	CandidatesCount *int64 `json:"candidatesTokenCount"`
	ThoughtsCount   *int64 `json:"thoughtsTokenCount"`
	CachedCount     *int64 `json:"cachedContentTokenCount"`
}

// A cachedPart says how many of the input tokens an OpenAI model had in its cache.
type cachedPart struct {
	Cached *int64 `json:"cached_tokens"`
}

func (c *cachedPart) tokens() *int64 {
	if c == nil {
		return nil
	}
	return c.Cached
}

// read finds the number of tokens used in text, one JSON value of an AI model's response. Other text is
// ignored.
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

// add notes the tokens that r reports. It retains the maximum of each amount, since reports in one stream are
// cumulative, and some are zero.
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
		in := []*int64{u.InputTokens, u.CacheCreation, u.CacheRead, u.Prompt, u.PromptCount, u.ToolPromptCount}
		out := []*int64{u.OutputTokens, u.Completion, u.CandidatesCount, u.ThoughtsCount}
		m.in, m.out = m.in || reported(u.InputTokens, u.Prompt, u.PromptCount), m.out || reported(out...)
		m.used.Input = max(m.used.Input, sum(in...))
		m.used.Cached = max(m.used.Cached, sum(u.CacheRead, u.InputDetails.tokens(), u.CachedCount)+max(sum(u.PromptDetails.tokens()), sum(u.CacheHit)))
		m.used.Written = max(m.used.Written, sum(u.CacheCreation))
		m.used.Output = max(m.used.Output, sum(out...))
	}
	m.used.Tokens = m.used.Input + m.used.Output
}

// maxReported is the largest number of tokens that is believed when a server reports it, so that sums do not
// overflow. A larger number counts as this one.
const maxReported = 1 << 40

// sum adds numbers of tokens that a server reported, each limited to the range from 0 to maxReported. nil counts as 0.
func sum(all ...*int64) (n int64) {
	for _, one := range all {
		if one != nil {
			n += min(max(0, *one), maxReported)
		}
	}
	return n
}

// reported reports whether a server reported one of the numbers.
func reported(all ...*int64) bool {
	return slices.ContainsFunc(all, func(one *int64) bool { return one != nil })
}
