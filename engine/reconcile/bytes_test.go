package reconcile

import (
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

// TestNotesKeepAnyBytes: the paths, link targets and attributes in what is stored for an undo, and of conflicts, may be
// any bytes.
func TestNotesKeepAnyBytes(t *testing.T) {
	exactjsontest.Value[promotedNote](t)
	exactjsontest.Value[conflictList](t)
}
