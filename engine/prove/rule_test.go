//go:build linux

package prove

import (
	"strings"
	"testing"
	"testing/iotest"
)

// The status of a reply is read whole, however the network cuts it, and a reply without one is an error with a text.
func TestTheStatusLineIsReadWhole(t *testing.T) {
	for reply, want := range map[string]string{
		"HTTP/1.1 429 Too Many Requests\r\n\r\n": "status 429",
		"HTTP/1.1 200 OK":                        "status 200",
		"220 mail\r\n":                           "the server sent no HTTP status line",
		"":                                       "the server sent no HTTP status line",
	} {
		if got := answerText(readStatus(iotest.OneByteReader(strings.NewReader(reply)))); got != want {
			t.Errorf("%q: %s, want %s", reply, got, want)
		}
	}
}
