package fusecow

import (
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

// TestRequestsKeepAnyBytes: the path of a tree, and those in an error, may be any bytes.
func TestRequestsKeepAnyBytes(t *testing.T) {
	exactjsontest.Value[record](t)
	exactjsontest.Value[startRequest](t)
	exactjsontest.Value[request](t)
	exactjsontest.Value[reply](t)
}
