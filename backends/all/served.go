//go:build fusecow

package all

import (
	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// served are the backends whose trees a process has to serve. What it takes to serve
// them does work at every start of the program, so they are linked where that was
// asked for.
func served() []snapshot.Driver { return []snapshot.Driver{fusecow.Driver()} }
