package exactjson_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

type embedded struct {
	Inner string `json:"inner"`
}

type everything struct {
	embedded

	Path   string            `json:"path"`
	List   []string          `json:"list,omitempty"`
	Pair   [2]string         `json:"pair"`
	Map    map[string]string `json:"map,omitempty"`
	Deep   map[string][]*everything
	Next   *everything `json:"next,omitempty"`
	When   time.Time   `json:"when"`
	Bytes  []byte      `json:"bytes"`
	Number float64     `json:"number"`
	Hidden string      `json:"-"`
	own    string
}

func decode[T any](text []byte) (v T, err error) {
	err = exactjson.Decode(text, &v)
	return v, err
}

func TestStringsOfAnyBytesComeBack(t *testing.T) {
	exactjsontest.Value[everything](t)
	exactjsontest.Value[map[string]string](t)
	indented := func(v everything) ([]byte, error) { return exactjson.EncodeIndent(&v, "", "  ") }
	exactjsontest.RoundTrip(t, indented, decode[everything])
}

// TestUTF8StaysAsItIs: programs of other versions read and write the same text.
func TestUTF8StaysAsItIs(t *testing.T) {
	for _, s := range []string{"", "/a b/ä\ufffd", "<&>\u2028\t\"\\", `\ufffd\u0000`} {
		v := everything{Path: s, List: []string{s}, Map: map[string]string{s: s}, Next: &everything{Path: s}}
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := exactjson.Encode(v)
		if err != nil || string(got) != string(want) {
			t.Errorf("%q is written as %s (%v), want %s", s, got, err, want)
		}
		if back, err := decode[everything](want); err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("%s is read as %+v (%v)", want, back, err)
		}
		want, err = json.MarshalIndent(v, "", " ")
		if got, gerr := exactjson.EncodeIndent(v, "", " "); err != nil || gerr != nil || string(got) != string(want) {
			t.Errorf("%q is written as %s (%v, %v), want %s", s, got, err, gerr, want)
		}
	}
}

// TestFormOfOtherBytes: stored files have this form.
func TestFormOfOtherBytes(t *testing.T) {
	for s, want := range map[string]string{"nu/\xff\xfe": "\x00bnUv//4=", "\x00": "\x00AA==", "\x00a": "\x00AGE="} {
		if got := exactjson.Escape(s); got != want {
			t.Errorf("Escape(%q) = %q, want %q", s, got, want)
		}
		if got := exactjson.Unescape(want); got != s {
			t.Errorf("Unescape(%q) = %q, want %q", want, got, s)
		}
	}
	if got := exactjson.Unescape("\x00not base 64"); got != "\x00not base 64" {
		t.Errorf("a text that is not escaped becomes %q", got)
	}
	text, err := exactjson.Encode([]string{"caf\xe9"})
	if want := `["\u0000Y2Fm6Q=="]`; err != nil || string(text) != want {
		t.Errorf("Encode = %s (%v), want %s", text, err, want)
	}
}

// TestOthersKeepTheirValues: a caller goes on with what it has encoded, and what JSON does not hold stays.
func TestOthersKeepTheirValues(t *testing.T) {
	v := everything{Hidden: "\xff", own: "\x00AA==", List: []string{"\xff"}}
	text, err := exactjson.Encode(v)
	if err != nil || v.List[0] != "\xff" || strings.Contains(string(text), "Hidden") {
		t.Fatalf("after Encode: %+v, %s, %v", v, text, err)
	}
	v.Hidden = "\x00AA=="
	if err := exactjson.Decode(text, &v); err != nil || v.Hidden != "\x00AA==" || v.own != "\x00AA==" {
		t.Errorf("after Decode: %+v, %v", v, err)
	}
	if _, err := exactjson.Encode(func() {}); err == nil {
		t.Error("a function has a JSON form")
	}
	if err := exactjson.Decode([]byte("{"), &v); err == nil {
		t.Error("text that is not JSON is decoded")
	}
}

// A plain string is one that package json only puts between quotation marks. Of ASCII, all such strings are plain.
func TestAPlainStringIsItsOwnJSON(t *testing.T) {
	for c := range 256 {
		s := "a" + string([]byte{byte(c)}) + "b"
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if want := c < 0x7f && string(text) == `"`+s+`"`; exactjson.IsPlain(s) != want {
			t.Errorf("%q is plain: %v, and package json writes %s", s, !want, text)
		}
	}
	if !exactjson.IsPlain("") {
		t.Error("the empty string is not plain")
	}
}
