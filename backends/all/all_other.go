//go:build !linux

package all

import (
	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Drivers lists the drivers of all backends of this system. Only plain, which copies every file, needs no
// feature of Linux; it is never chosen automatically.
var Drivers = []snapshot.Driver{plain.Driver}
