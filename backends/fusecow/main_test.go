//go:build linux

package fusecow_test

import (
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/servetest"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// TestMain makes the test binary its own server of trees.
func TestMain(m *testing.M) { servetest.Main(m) }

func driver() snapshot.Driver {
	return servetest.Driver(fusecow.Driver)
}
