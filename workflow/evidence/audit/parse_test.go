package audit

import (
	"reflect"
	"strings"
	"testing"
)

// TestTheScannerAgreesWithTheLibrary changes lines byte by byte: the scanner takes a line if the
// library takes it, and reads the same from it.
func TestTheScannerAgreesWithTheLibrary(t *testing.T) {
	prev := strings.Repeat("0", 64)
	line := func(data string) string {
		return `{"boot":"b","data":` + data + `,"prev":"` + prev + `","sandbox":"s1","seq":12,"time":"2026-01-02T03:04:05Z","type":"t","up":5000}`
	}
	lines := []string{
		line(`{}`), line(`{"a":1,"b":-20,"c":["x",true,false,[],{}],"d":{"e":"f","g":0}}`),
		line(`{"a":"ü","b":"\n","c":null,"d":1.5,"e":1e+21}`), line(`{"a":9007199254740991,"b":123456789012345}`),
		// What is not canonical, though it is JSON.
		line(`{"b":1,"a":2}`), line(`{"a":1,"a":1}`), line(`{"a":01}`), line(`{"a":-0}`), line(`{"a": 1}`), line(`{"a":1.0}`), line(`{"a":"\u0061"}`),
		line(`{"a":1}`) + " ", line(`{"a":1234567890123456}`), line(`{"a":99999999999999999}`), line(`[]`), line(`null`), line(strings.Repeat("[", 300)),
		line(strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)),
	}
	taken := 0
	check := func(text []byte) {
		want, wantErr := strict(text)
		got, err := Parse(text)
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%s:\n%v, %v\nthe library:\n%v, %v", text, got, err, want, wantErr)
		}
		if err == nil {
			taken++
		}
	}
	for _, l := range lines {
		check([]byte(l))
		from := strings.Index(l, "data") // the shape around it is fixed
		for i := from; i < min(len(l), from+120); i++ {
			for _, c := range []byte(`"\{}[]:,0-19.eatn` + "\x00\x7f\xff ") {
				changed := []byte(l)
				changed[i] = c
				check(changed)
			}
			check([]byte(l[:i]))
			check([]byte(l[:i] + l[i+1:]))
		}
	}
	if taken < 300 {
		t.Errorf("only %d lines were records", taken)
	}
}

func TestTheFirstBadLineIsNamed(t *testing.T) {
	good, err := Canonical(Record{Data: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, partSize, 10*partSize + 1} {
		lines := make([][]byte, n)
		for i := range lines {
			lines[i] = good
		}
		if _, bad := ParseAll(lines); bad != -1 {
			t.Errorf("of %d good lines, line %d is bad", n, bad)
		}
		for _, at := range []int{0, n / 2, n - 1} {
			changed := append([][]byte{}, lines...)
			changed[at], changed[n-1] = []byte("no"), []byte("no")
			if _, bad := ParseAll(changed); bad != at {
				t.Errorf("of %d lines, line %d is named and not %d", n, bad, at)
			}
		}
	}
}

// TestTheTypeIsThatOfTheRecord has texts in front of the type that look like it.
func TestTheTypeIsThatOfTheRecord(t *testing.T) {
	for _, r := range []Record{
		{Type: "snapfs.evidence.ended", Data: map[string]any{}},
		{Type: "t", Sandbox: `,"type":"x"`, Data: map[string]any{"a": "b", "type": "y", "z": `,"type":"z"`}},
		{Type: "t", Data: map[string]any{"a": map[string]any{"b": 1, "type": "y"}}},
	} {
		line, err := Canonical(r)
		if got := TypeOf(line); err != nil || got != r.Type {
			t.Errorf("%s has the type %q, %v", line, got, err)
		}
	}
	if got := TypeOf([]byte("no record")); got != "" {
		t.Errorf("no record has the type %q", got)
	}
}
