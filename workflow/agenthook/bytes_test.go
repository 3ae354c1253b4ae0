package agenthook_test

import (
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
	"github.com/snapfs/snapfs/workflow/agenthook"
)

// TestLeasesKeepAnyBytes: the workspace and the view of an agent's sandbox may be any bytes.
func TestLeasesKeepAnyBytes(t *testing.T) {
	exactjsontest.Value[agenthook.Lease](t)
}
