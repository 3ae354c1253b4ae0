package baseline

import (
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

// TestStoredPathsKeepAnyBytes: paths, link targets and attributes may be any bytes.
func TestStoredPathsKeepAnyBytes(t *testing.T) {
	exactjsontest.Value[jsonBaseline](t)
	exactjsontest.Value[StampsOf](t)
}

// TestOlderFormOfOtherBytes: a list or note of an older version of snapfs is read with its paths.
func TestOlderFormOfOtherBytes(t *testing.T) {
	k := Baseline{Nodes: map[string]Entry{}}
	const text = `{"nodes":{"\u0000L3gv6Q==":{"node":{"target":"\u00006Q==","xattrs":{"user.a":"\u0000/w=="}}}}}`
	if err := k.decodeJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	n, ok := k.Nodes["/x/\xe9"]
	if !ok || n.Node.Target != "\xe9" || n.Node.Xattrs["user.a"] != "\xff" {
		t.Errorf("read as %+v", k.Nodes)
	}
}
