package pool

import (
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

// TestRecordsKeepAnyBytes: the path of a workspace on the pool may be any bytes.
func TestRecordsKeepAnyBytes(t *testing.T) {
	exactjsontest.Value[record](t)
}
