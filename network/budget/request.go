package budget

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// noLimit is how many output tokens the budget reserves for a request to an AI model that names no maximum.
const noLimit = 4096

// Bounds of the output tokens and the number of answers that a request may ask for, so that products do not
// overflow. A request for more is refused.
const (
	maxOutput  = 1 << 32
	maxAnswers = 1 << 16
)

// requestKeys returns the JSON keys of a request to an AI model that bound its output or name the model. It maps
// each spelling of a key to one name.
func requestKeys() map[string]string {
	return map[string]string{
		"max_tokens": "max_tokens", "max_completion_tokens": "max_completion_tokens", "max_output_tokens": "max_output_tokens",
		"n": "n", "best_of": "best_of", "stream": "stream", "stream_options": "stream_options", "background": "background",
		"generationConfig": config, "generation_config": config, "model": "model", "models": "models",
		"service_tier": "service_tier", "speed": "speed", "tools": "tools",
	}
}

func configKeys() map[string]string {
	return map[string]string{
		"maxOutputTokens": "maxOutputTokens", "max_output_tokens": "maxOutputTokens", "candidateCount": "candidateCount", "candidate_count": "candidateCount",
	}
}

const config = "generationConfig"

// members returns the values of the known keys of the JSON object text, by the names that known gives them. A
// key that is there twice, or in another case, is an error, because readers of JSON differ on it.
func members(text []byte, known map[string]string) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is no JSON object")
	}
	found := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string) // a key is nothing else
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		name, exact := known[key]
		if exact {
			if found[name] != nil {
				return nil, errors.New(name + " is there twice")
			}
			found[name] = value
			continue
		}
		for k := range known {
			if strings.EqualFold(k, key) {
				return nil, fmt.Errorf("the key %.60q is %s in another case", key, k)
			}
		}
	}
	return found, nil
}

// largest returns the largest of the numbers at keys in found, the members of a JSON request to an AI model;
// 0 if it has none. A number above bound is an error.
func largest(found map[string]json.RawMessage, bound int64, keys ...string) (n int64, err error) {
	for _, key := range keys {
		var one int64
		if v := found[key]; v != nil && json.Unmarshal(v, &one) != nil || one < 0 || one > bound {
			return 0, fmt.Errorf("%s is no whole number up to %d", key, bound)
		}
		n = max(n, one)
	}
	return n, nil
}

// flag returns the boolean at key in found, the members of a JSON request to an AI model; false if it has
// none.
func flag(found map[string]json.RawMessage, key string) (set bool, err error) {
	if v := found[key]; v != nil && json.Unmarshal(v, &set) != nil {
		return false, errors.New(key + " is neither true nor false")
	}
	return set, nil
}

// A request is the part of a request to an AI model that names the model and bounds the number of output tokens.
type request struct {
	model              string
	several            bool   // the server may choose between models
	dearer             string // a key that may make the model cost more than its price, or ""
	stored             bool   // the server adds input to the request that it has stored
	output, answers    int64
	stream, background bool
}

func readRequest(body []byte) (r request, err error) {
	if !json.Valid(body) {
		return r, errors.New("it is no JSON")
	}
	top, err := members(body, requestKeys())
	if err != nil {
		return r, err
	}
	gemini := map[string]json.RawMessage{}
	if v := top[config]; v != nil && string(v) != "null" {
		if gemini, err = members(v, configKeys()); err != nil {
			return r, fmt.Errorf("in %s: %w", config, err)
		}
	}
	output, err1 := largest(top, maxOutput, "max_tokens", "max_completion_tokens", "max_output_tokens")
	output2, err2 := largest(gemini, maxOutput, "maxOutputTokens")
	answers, err3 := largest(top, maxAnswers, "n", "best_of")
	answers2, err4 := largest(gemini, maxAnswers, "candidateCount")
	stream, err5 := flag(top, "stream")
	background, err6 := flag(top, "background")
	model, err7 := name(top)
	_, several := top["models"]
	return request{
		model: model, several: several, dearer: dearer(top), stored: stored(body), output: max(output, output2), answers: max(1, answers, answers2), stream: stream, background: background,
	}, cmp.Or(err1, err2, err3, err4, err5, err6, err7)
}

// dearer returns the key in found, the members of a JSON request to an AI model, by which the request may cost more than
// the price of its model: a faster tier of the service, or a tool that is a model itself. It returns "" if there is none.
func dearer(found map[string]json.RawMessage) string {
	usual := map[string][]string{"service_tier": {"auto", "default", "flex", "standard", "standard_only", "batch"}, "speed": {"standard"}}
	for _, key := range []string{"service_tier", "speed"} {
		var text string
		if v := found[key]; v != nil && string(v) != "null" && (json.Unmarshal(v, &text) != nil || !slices.Contains(usual[key], text)) {
			return key
		}
	}
	var tools []map[string]json.RawMessage
	_ = json.Unmarshal(found["tools"], &tools) // another form has no tools with names
	for _, tool := range tools {
		if tool["model"] != nil {
			return "tools"
		}
	}
	return ""
}

// storedKeys are the keys of a request to an AI model, at any depth, that refer to input which the provider has stored.
var storedKeys = []string{
	"previous_response_id", "conversation", "cachedContent", "cached_content", "file_id", "fileUri", "file_uri", "file_url", "prompt_id",
}

// stored reports whether body, a JSON request to an AI model, refers to input that the provider has stored, so that its
// length says nothing about its tokens.
func stored(body []byte) bool {
	var all any
	return mayRefer(body) && json.Unmarshal(body, &all) == nil && refers(all)
}

// mayRefer reports whether body may have a key for which refers looks, as it stands or with an escaped letter. Decoding
// the whole body would cost some milliseconds for each request of an agent.
func mayRefer(body []byte) bool {
	for _, key := range append(slices.Clip(storedKeys), "prompt") {
		if bytes.Contains(body, []byte(`"`+key+`"`)) {
			return true
		}
	}
	for rest := body; ; {
		_, after, escaped := bytes.Cut(rest, []byte(`\u00`))
		if !escaped {
			return false
		}
		if len(after) > 0 && '4' <= after[0] && after[0] <= '7' { // a letter or an underscore
			return true
		}
		rest = after
	}
}

// refers is stored for a part of the request.
func refers(part any) bool {
	switch part := part.(type) {
	case []any:
		return slices.ContainsFunc(part, refers)
	case map[string]any:
		for key, value := range part {
			if slices.Contains(storedKeys, key) && value != nil {
				return true
			}
			if prompt, is := value.(map[string]any); key == "prompt" && is && prompt["id"] != nil {
				return true
			}
			if refers(value) {
				return true
			}
		}
	}
	return false
}

// maxModelName is the longest name of an AI model, in bytes, that a request may have.
const maxModelName = 200

// name returns the name of the AI model in found, the members of a JSON request, or "" if it has none.
func name(found map[string]json.RawMessage) (model string, err error) {
	v := found["model"]
	if v == nil {
		return "", nil
	}
	if json.Unmarshal(v, &model) != nil || len(model) > maxModelName {
		return "", fmt.Errorf("model is no text of up to %d bytes", maxModelName)
	}
	return model, nil
}

// modelOf returns the name of the AI model of a request: that in its path, as in Gemini's /v1/models/NAME:generateContent
// and Azure's /deployments/NAME/, else that in its body.
func modelOf(path, inBody string) string {
	if model := modelIn(path); model != "" {
		return model[:min(len(model), maxModelName)]
	}
	return inBody
}

// modelIn returns the name of the AI model in the path of a request, or "".
func modelIn(path string) string {
	last := path[strings.LastIndexByte(path, '/')+1:]
	if model, _, ok := strings.Cut(last, ":"); ok {
		return model
	}
	for _, before := range []string{"/models/", "/deployments/", "/engines/"} {
		if _, after, ok := strings.Cut(path, before); ok {
			model, _, _ := strings.Cut(after, "/")
			return model
		}
	}
	return ""
}

// storedInput is how many input tokens the budget reserves for a request that refers to input which the provider has
// stored: the context of a usual model.
const storedInput = 200_000

// inputOf returns the greatest number of tokens expected of a text: one for three bytes of ASCII, and one for each other
// byte.
func inputOf(text []byte) int64 {
	other := 0
	for _, c := range text {
		if c >= 0x80 {
			other++
		}
	}
	return int64((len(text)-other)/3 + other + 1)
}

// HidesUsage returns the key in rawQuery, the query of a request to an AI model, that can make the server leave the
// tokens used out of its response, or answer in another form than JSON. It returns "" if there is none.
func HidesUsage(rawQuery string) string {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return "?"
	}
	for name, all := range values {
		switch strings.ToLower(strings.TrimPrefix(name, "$")) {
		case "fields", "callback", "prettyprint.fields":
			return name
		case "alt":
			if slices.ContainsFunc(all, func(v string) bool { return v != "json" && v != "sse" }) {
				return name
			}
		}
	}
	return ""
}

// A Worst is the greatest cost expected of a request to a provider of AI models.
type Worst struct {
	Count
	// Model is the name of the AI model in the request, or "".
	Model string
	// Price is that of the model, or nil if it has none.
	Price *Price
	// Open is set if the request does not bound its output, for which the count then has a guess.
	Open bool
	// Send is the body to send instead of the request's. It differs for a stream of OpenAI's Chat, which reports its
	// usage only when asked to.
	Send []byte
}

// WorstOf returns the greatest cost expected of a request to a provider of AI models, by its path and body, and by
// the prices of models. It returns an error for a request whose cost cannot be bounded, and, with priced, for one
// whose model has no price.
func WorstOf(path string, body []byte, prices []Price, priced bool) (w Worst, err error) {
	r, err := readRequest(body)
	w.Model = modelOf(path, r.model)
	w.Price = priceOf(prices, w.Model)
	switch {
	case err != nil:
		return Worst{}, err
	case r.background:
		return Worst{}, errors.New("it runs in the background")
	case priced && r.several:
		return Worst{}, errors.New("the server chooses between several models, which may have other prices")
	case priced && r.dearer != "":
		return Worst{}, fmt.Errorf("%s may make the model cost more than its price", r.dearer)
	case priced && r.model != "" && modelIn(path) != "" && strings.TrimPrefix(r.model, "models/") != modelIn(path):
		return Worst{}, fmt.Errorf("it names the models %.80q and %.80q", modelIn(path), r.model)
	case priced && w.Price == nil:
		return Worst{}, fmt.Errorf("no section [prices] names the model %.80q", w.Model)
	case ends(path, "/embeddings"):
		r.output = 0
	case r.output == 0:
		r.output, w.Open = noLimit, true
	}
	output := r.output * r.answers
	input := inputOf(body)
	if r.stored {
		input = max(input, storedInput)
	}
	w.Count = Count{Requests: 1, Sent: int64(len(body)), Input: input, Output: output, Tokens: input + output}
	w.Money = w.Price.Worst(w.Count)
	if w.Send = body; r.stream && ends(path, "/completions") {
		w.Send = withUsage(body)
	}
	return w, nil
}

// withUsage returns the body of a streaming request to an AI model, with an option added by which the last
// event of the response reports the tokens used.
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
