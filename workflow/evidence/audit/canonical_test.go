package audit

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// byLibrary returns v as canonical JSON, made by the JSON library alone.
func byLibrary(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	text := jsontext.Value(b.Bytes())
	if err := text.Canonicalize(); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(text)
}

// texts are strings that JSON escapes, or sorts, in special ways.
var texts = []string{
	"", "a", "B", "data", "a\"b", "back\\slash", "<&>", "tab\t", "line\n", "\x00\x1f\x7f", "ü", "\u2028\u2029", "\U0001f600", "\ue000", "cut \xc3", "\xff\xfe",
	"aa", "a b", "~", " ",
}

// randomValue returns a value as the data of a record has it, nested up to depth.
func randomValue(r *rand.Rand, depth int) any {
	text := func() string { return texts[r.IntN(len(texts))] }
	kinds := 14
	if depth == 0 {
		kinds = 9
	}
	switch r.IntN(kinds) {
	case 0, 1, 2:
		return text()
	case 3:
		return r.IntN(2) == 0
	case 4:
		return r.Int64() >> r.IntN(64)
	case 5:
		return -int(r.Int32())
	case 6:
		return []float64{0, math.Copysign(0, -1), 1.5, 1e21, -3, 1 << 53, 1<<53 + 2, 1e-7, 1e100}[r.IntN(9)]
	case 7:
		return nil
	case 8:
		return []string(nil)
	case 9:
		return []string{text(), text()}
	case 10:
		return map[string]string{"one": text(), "Two": text(), "tw": text()}
	case 11, 12:
		all := []any{}
		for range r.IntN(4) {
			all = append(all, randomValue(r, depth-1))
		}
		return all
	}
	m := map[string]any{}
	for range r.IntN(20) {
		if name := text(); bytes.IndexByte([]byte(name), 0xc3) < 0 && bytes.IndexByte([]byte(name), 0xff) < 0 || name == "ü" {
			m[name] = randomValue(r, depth-1)
		}
	}
	return m
}

func TestCanonicalEqualsTheLibrary(t *testing.T) {
	quick := 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 25))
		v := randomValue(r, 3)
		if data, ok := v.(map[string]any); ok && seed%2 == 0 {
			v = Record{Seq: r.Int64N(1 << 50), Prev: FirstPrev, Time: "t", Boot: texts[r.IntN(len(texts))], Up: 1, Type: "x", Sandbox: "s", Data: data}
		}
		got, err := Canonical(v)
		if want := byLibrary(t, v); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %v: %v\n%q\n%q", seed, v, err, got, want)
		}
		if _, ok := appendValue(nil, v); ok {
			quick++
		}
	}
	if quick < 1000 {
		t.Errorf("%d of 4,000 values were written without the library", quick)
	}
}
