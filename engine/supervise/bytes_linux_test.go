package supervise

import (
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
	"github.com/snapfs/snapfs/internal/fdsock"
)

// TestMessagesKeepAnyBytes: arguments, variables and directories of a command, and paths in replies, may be any bytes.
func TestMessagesKeepAnyBytes(t *testing.T) {
	exactjsontest.Value[Request](t)
	exactjsontest.Value[refusal](t)
	ours, theirs, err := fdsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	client := fdsock.FromFD(int(theirs.Fd()))
	defer theirs.Close()
	exactjsontest.RoundTrip(t, func(v Reply) ([]byte, error) {
		if !send(ours, v) {
			t.Fatal("a reply cannot be sent")
		}
		return exactjson.Encode(v)
	}, func([]byte) (Reply, error) {
		v, _, err := receive(client)
		return v, err
	})
}
