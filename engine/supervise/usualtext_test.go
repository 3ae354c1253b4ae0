package supervise

import (
	"reflect"
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson"
)

// TestUsualMessagesAreThoseOfJSON: the messages that are written and recognised without package json are what it writes
// and reads.
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
