package audit

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns v as canonical JSON (RFC 8785), the form of evidence: equal values give equal bytes,
// which can be signed.
func Canonical(v any) ([]byte, error) {
	if text, ok := appendValue(nil, v); ok {
		return text, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	text := jsontext.Value(b.Bytes())
	err := text.Canonicalize()
	return bytes.TrimSpace(text), err
}

// IsCanonical reports whether text is JSON in canonical form (RFC 8785), which each line of an evidence log
// must have.
func IsCanonical(text []byte) bool {
	again := jsontext.Value(bytes.Clone(text))
	return again.Canonicalize() == nil && bytes.Equal(again, text)
}

// maxExact is the greatest integer that canonical JSON (RFC 8785) can express, as its numbers are those of IEEE 754.
const maxExact = 1 << 53

// appendValue appends v as canonical JSON (RFC 8785) to text, without reflection, since each command in a recorded
// sandbox waits for two records. It knows records of an evidence log and the types of which their data mostly
// consists. For another value, or a number that canonical JSON writes otherwise, ok is false, and the JSON library
// must encode the whole.
func appendValue(text []byte, v any) (_ []byte, ok bool) {
	switch v := v.(type) {
	case Record:
		return appendRecord(text, &v)
	case string:
		return appendText(text, v), true
	case bool:
		return strconv.AppendBool(text, v), true
	case int:
		return appendInteger(text, int64(v))
	case int64:
		return appendInteger(text, v)
	case float64: // a number that was parsed
		if v != math.Trunc(v) || math.Abs(v) > maxExact {
			return text, false
		}
		return appendInteger(text, int64(v))
	case []string:
		return appendList(text, v)
	case []any:
		return appendList(text, v)
	case map[string]string:
		return appendObject(text, v)
	case map[string]any:
		return appendObject(text, v)
	}
	return text, false
}

// appendRecord appends r, a record of an evidence log, as canonical JSON to text. It returns false for data that
// [appendValue] does not know.
func appendRecord(text []byte, r *Record) (_ []byte, ok bool) {
	if r.Data == nil {
		return text, false
	}
	text = slices.Grow(text, 1<<10)
	text = appendText(append(text, `{"boot":`...), r.Boot)
	if text, ok = appendObject(append(text, `,"data":`...), r.Data); !ok {
		return text, false
	}
	text = appendText(append(text, `,"prev":`...), r.Prev)
	text = appendText(append(text, `,"sandbox":`...), r.Sandbox)
	if text, ok = appendInteger(append(text, `,"seq":`...), r.Seq); !ok {
		return text, false
	}
	text = appendText(append(text, `,"time":`...), r.Time)
	text = appendText(append(text, `,"type":`...), r.Type)
	if text, ok = appendInteger(append(text, `,"up":`...), r.Up); !ok {
		return text, false
	}
	return append(text, '}'), true
}

// appendText appends value as a string of canonical JSON to text. As in package json, U+FFFD replaces bytes that
// are not UTF-8.
func appendText(text []byte, value string) []byte {
	if !plain(value) {
		text, _ = jsontext.AppendQuote(text, value) // the error says that a byte was replaced
		return text
	}
	return append(append(append(text, '"'), value...), '"')
}

// plain reports whether value is printable ASCII without the characters that JSON escapes, so that it stands in
// canonical JSON as it is.
func plain(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func appendInteger(text []byte, n int64) (_ []byte, ok bool) {
	return strconv.AppendInt(text, n, 10), -maxExact <= n && n <= maxExact
}

// appendList appends values as a list of canonical JSON to text. It returns false for a nil list, which is null in
// JSON, and for values that [appendValue] does not know.
func appendList[V any](text []byte, values []V) (_ []byte, ok bool) {
	text, ok = append(text, '['), values != nil
	for i, v := range values {
		if i > 0 {
			text = append(text, ',')
		}
		if text, ok = appendValue(text, v); !ok {
			break
		}
	}
	return append(text, ']'), ok
}

// appendObject appends m as an object of canonical JSON to text, its names in the order of their UTF-16 code units.
// It returns false for a nil map, which is null in JSON, for names that are not [plain], and for values that
// [appendValue] does not know.
func appendObject[V any](text []byte, m map[string]V) (_ []byte, ok bool) {
	var few [16]string
	names := few[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names) // of ASCII, bytes and UTF-16 have the same order
	text, ok = append(text, '{'), m != nil
	for i, name := range names {
		if i > 0 {
			text = append(text, ',')
		}
		if !plain(name) {
			return text, false
		}
		text = append(append(append(text, '"'), name...), `":`...)
		if text, ok = appendValue(text, m[name]); !ok {
			break
		}
	}
	return append(text, '}'), ok
}
