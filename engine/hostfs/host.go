package hostfs

import (
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A Host opens the trees of this machine with the backends that can hold them.
// It is safe for concurrent use.
type Host struct {
	cat     *catalog.Catalog
	drivers []snapshot.Driver
	notice  func(string)
	server  func() ([]string, error) // see snapshot.Place

	mu       sync.Mutex
	backends map[string]snapshot.Backend // opened backends, by driver and tree
}

// New returns a Host that prefers the drivers in their order. server returns the command line of the program that
// serves FUSE mounts for drivers that need one, see [snapshot.Place]. notice gets sentences for the user, such as
// that a copy is large.
func New(cat *catalog.Catalog, drivers []snapshot.Driver, server func() ([]string, error), notice func(string)) *Host {
	return &Host{cat: cat, drivers: drivers, server: server, notice: notice, backends: map[string]snapshot.Backend{}}
}
