package stream_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
	"github.com/snapfs/snapfs/workflow/transfer/stream"
)

// TestHeadersKeepAnyBytes: the workspace of a sent snapshot may be any bytes.
func TestHeadersKeepAnyBytes(t *testing.T) {
	var sent bytes.Buffer
	exactjsontest.RoundTrip(t, func(l stream.Header) ([]byte, error) {
		sent.Reset()
		if _, err := stream.NewWriter(&sent, l); err != nil {
			return nil, err
		}
		return exactjson.Encode(l)
	}, func([]byte) (stream.Header, error) {
		_, l, err := stream.Open(&sent)
		return l, err
	}, func(l *stream.Header) {
		l.Sandbox, l.State, l.ID, l.Base, l.From, l.Before = "a", "b", "x1", "", 0, ""
		l.Workspace = filepath.Clean("/" + l.Workspace)
	})
}
