package confedit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A mark is what the tests add.
type mark struct {
	Ours string `json:"ours"`
}

func isMark(element []byte) bool {
	var m mark
	return json.Unmarshal(element, &m) == nil && m.Ours != ""
}

var (
	before = []string{"hooks", "PreToolUse"}
	after  = []string{"hooks", "PostToolUse"}
)

// files are real configurations, as people write them.
var files = map[string]string{
	"created":         Created,
	"empty":           "{}",
	"empty lines":     "{\n\n}\n",
	"one line":        `{"model": "opus"}`,
	"indent of four":  "{\n    \"model\": \"opus\",\n    \"env\": {\n        \"A\": \"1\"\n    }\n}\n",
	"tabs":            "{\n\t\"model\": \"opus\"\n}",
	"windows":         "{\r\n  \"model\": \"opus\",\r\n  \"hooks\": {\r\n    \"PreToolUse\": [\r\n      {\"a\": 1}\r\n    ]\r\n  }\r\n}\r\n",
	"other hooks":     "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\n        \"matcher\": \"Bash\",\n        \"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]\n      }\n    ],\n    \"Stop\": []\n  },\n  \"model\": \"opus\"\n}\n",
	"empty hooks":     "{\n  \"hooks\": {}\n}\n",
	"empty list":      "{\n  \"hooks\": {\"PreToolUse\": [], \"PostToolUse\": [\n    ]}\n}\n",
	"comments":        "// mine\n{\n  // why\n  \"model\": \"opus\", // the best\n  /* two\n     lines */\n  \"hooks\": { // all\n    \"PreToolUse\": [ // first\n      {\"a\": 1}, // one\n      {\"b\": 2} // two\n      // end\n    ] // list\n  } // hooks\n  // last\n}\n// after\n",
	"trailing commas": "{\n  \"model\": \"opus\",\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"a\": 1},\n    ],\n  },\n}\n",
	"comma comment":   "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"a\": 1}, // one\n    ], // list\n  }, // hooks\n}\n",
	"compact":         `{"hooks":{"PreToolUse":[{"a":1},{"b":2}],"Other":[1,2,3]},"x":{"y":[]}}`,
	"odd names":       "{\n  \"a,b\": \"c // d\",\n  \"e\": \"/* f */\"\n}",
}

// TestWhatAppendAddsRemoveTakesBack: every byte of the rest stays, in between and afterwards.
func TestWhatAppendAddsRemoveTakesBack(t *testing.T) {
	for name, text := range files {
		t.Run(name, func(t *testing.T) { roundTrip(t, []byte(text)) })
	}
}

// fataler is the part of testing.TB that rapid's T has, too.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func roundTrip(t fataler, text []byte) {
	t.Helper()
	one := must(Append(text, before, mark{"1"}))(t)
	two := must(Append(one, after, mark{"2 <&>"}))(t)
	for path, want := range map[string]string{before[1]: `"1"`, after[1]: `"2 <&>"`} {
		all, err := Elements(two, []string{"hooks", path})
		if err != nil || len(all) == 0 || !strings.Contains(string(all[len(all)-1]), want) {
			t.Fatalf("%s has %q, %v in\n%s", path, all, err, two)
		}
	}
	if !subsequence(text, two) {
		t.Fatalf("something of\n%s\nis not in\n%s", text, two)
	}
	back := must(Remove(two, after, isMark))(t)
	if !bytes.Equal(back, one) {
		t.Fatalf("after one removal:\n%s\nwant\n%s", back, one)
	}
	back = must(Remove(back, before, isMark))(t)
	if !bytes.Equal(back, text) {
		t.Fatalf("%q became\n%s\nand then %q", text, two, back)
	}
	// In the other order, too: the container was made for the first.
	back = must(Remove(must(Remove(two, before, isMark))(t), after, isMark))(t)
	if !bytes.Equal(back, text) {
		t.Fatalf("in the other order %q became\n%s\nand then %q", text, two, back)
	}
}

func must(text []byte, err error) func(t fataler) []byte {
	return func(t fataler) []byte {
		t.Helper()
		if err != nil {
			t.Fatalf("%v", err)
		}
		return text
	}
}

// subsequence reports whether the bytes of part come in whole in the same order.
func subsequence(part, whole []byte) bool {
	for _, b := range whole {
		if len(part) > 0 && part[0] == b {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// TestRoundTripsOfGeneratedFiles does the same for files of every shape: nesting, comments, trailing commas, line
// breaks. Cost: 20 ms.
func TestRoundTripsOfGeneratedFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := object(t, 3, []string{"hooks", "model", "x"}, func(t *rapid.T, name string) string {
			if name != "hooks" {
				return value(t, 2)
			}
			return object(t, 2, []string{"PreToolUse", "PostToolUse", "Stop"}, func(t *rapid.T, _ string) string { return array(t, 2) })
		})
		roundTrip(t, []byte(text))
	})
}

// space returns white space and comments.
func space(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", " ", "\n", "\n  ", "\n\t", " // c, {\n", " /* d, [ */ ", "\n\n    "}).Draw(t, "space")
}

func value(t *rapid.T, depth int) string {
	if depth == 0 {
		return rapid.SampledFrom([]string{"1", `"a, b"`, `"{"`, "null", "{}", "[]"}).Draw(t, "value")
	}
	if rapid.Bool().Draw(t, "array") {
		return array(t, depth)
	}
	return object(t, depth, []string{"a", "b"}, func(t *rapid.T, _ string) string { return value(t, depth-1) })
}

func array(t *rapid.T, depth int) string {
	var b strings.Builder
	n := rapid.IntRange(0, 3).Draw(t, "elements")
	for i := range n {
		b.WriteString(space(t) + value(t, depth-1) + space(t))
		if i < n-1 || rapid.Bool().Draw(t, "trailing comma") {
			b.WriteByte(',')
		}
	}
	return "[" + b.String() + space(t) + "]"
}

func object(t *rapid.T, _ int, names []string, of func(*rapid.T, string) string) string {
	var b strings.Builder
	n := rapid.IntRange(0, len(names)).Draw(t, "members")
	for i := range n {
		b.WriteString(space(t) + `"` + names[i] + `"` + space(t) + ":" + space(t) + of(t, names[i]) + space(t))
		if i < n-1 || rapid.Bool().Draw(t, "trailing comma") {
			b.WriteByte(',')
		}
	}
	return "{" + b.String() + space(t) + "}"
}

// TestAFileThatIsNoObjectIsRefused: nothing is guessed about a file that another program would not read either.
func TestAFileThatIsNoObjectIsRefused(t *testing.T) {
	for _, text := range []string{"", "[]", "1", "{", `{"hooks": 1}`, `{"hooks": {"PreToolUse": {}}}`, `{"hooks": []}`, "{\"a\": 1}}"} {
		if out, err := Append([]byte(text), before, mark{"1"}); err == nil {
			t.Errorf("%q became %q", text, out)
		}
	}
}
