package egress

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
)

// A Gateway starts the network proxies of sandboxes and reads their journals of allowed and refused
// connections.
type Gateway struct {
	// Catalog is that of the sandboxes.
	Catalog *catalog.Catalog
	// Events gets the decisions about connections.
	Events *events.Log
	// Program returns the command line of a proxy process; it is called when a sandbox needs one.
	Program func() ([]string, error)
}
