//go:build !linux

package all

import (
	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Drivers lists all backends: the others are made of what Linux has. Plain copies
// every file, and only where it is asked for.
func Drivers() []snapshot.Driver { return []snapshot.Driver{plain.Driver()} }
