package supervise

import (
	"errors"
	"reflect"
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/isolate"
)

// TestUsualMessagesAreThoseOfJSON: the texts of usual messages are those that package json writes and reads.
func TestUsualMessagesAreThoseOfJSON(t *testing.T) {
	for text, want := range map[string]Reply{frozenText: {Frozen: true}, startedText: {Started: true}} {
		if got, err := exactjson.Encode(want); string(got) != text || err != nil {
			t.Errorf("%+v is encoded as %s, %v, want %s", want, got, err, text)
		}
	}
	var got Request
	text := checkpointBegin + "call-1" + checkpointEnd
	if err := exactjson.Decode([]byte(text), &got); err != nil || !reflect.DeepEqual(got, Request{Checkpoint: "call-1"}) {
		t.Errorf("%s is decoded as %+v, %v", text, got, err)
	}
}

// A request to run a command is written as package json writes it, and read as package json reads it.
func TestARequestToRunACommandHasTheFormOfJSON(t *testing.T) {
	stops, many := int64(0), int64(12)
	usual := execRequest{Args: []string{"sh", "-c", "true; false"}, Env: []string{"PATH=/bin", "EMPTY="}, Dir: "/srv/work", Streams: []int{0, 1, 2}, EndAtTTL: true, Again: true, Stops: &stops}
	var texts []string
	for i, change := range []func(w *execRequest){
		func(*execRequest) {},
		func(w *execRequest) { w.EndAtTTL, w.Streams, w.Stops = false, []int{1}, &many },
		func(w *execRequest) { w.Again = false },
		func(w *execRequest) { w.Args = nil }, func(w *execRequest) { w.Env = nil }, func(w *execRequest) { w.Env = []string{} },
		func(w *execRequest) { w.Streams = nil }, func(w *execRequest) { w.Stops = nil },
		func(w *execRequest) { w.Detach = true }, func(w *execRequest) { w.Prove = true }, func(w *execRequest) { w.TTY = &isolate.Size{Rows: 2, Cols: 3} },
		func(w *execRequest) { w.Args = []string{"a\"b"} }, func(w *execRequest) { w.Env = []string{"A=\xff"} }, func(w *execRequest) { w.Dir = "/<é>" },
	} {
		w := usual
		change(&w)
		want, err := exactjson.Encode(Request{Exec: &w})
		if err != nil {
			t.Fatal(err)
		}
		text, err := encodeExec(&w)
		if string(text) != string(want) || err != nil {
			t.Errorf("%d: written as %s, %v, want %s", i, text, err, want)
		}
		var got, byJSON Request
		if err := errors.Join(decodeRequest(text, &got), exactjson.Decode(text, &byJSON)); err != nil || !reflect.DeepEqual(got, byJSON) {
			t.Errorf("%d: read as %+v, %v, want %+v", i, got.Exec, err, byJSON.Exec)
		}
		texts = append(texts, string(text))
	}
	text := texts[0]
	for i := range text {
		for _, b := range []string{"", "\\", "\x00", "0", `"`, ",", "]"} {
			other := text[:i] + b + text[i+1:]
			var got, byJSON Request
			err, want := decodeRequest([]byte(other), &got), exactjson.Decode([]byte(other), &byJSON)
			if (err == nil) != (want == nil) || err == nil && !reflect.DeepEqual(got, byJSON) {
				t.Errorf("read as %+v, %v, by package json as %+v, %v: %s", got.Exec, err, byJSON.Exec, want, other)
			}
		}
	}
}
