package stages

import (
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

// TestPipelinesKeepAnyBytes: the workspace, the profile, the targets and the paths of a promotion through stages may be
// any bytes.
func TestPipelinesKeepAnyBytes(t *testing.T) {
	exactjsontest.Value[Pipeline](t)
}
