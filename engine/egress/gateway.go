package egress

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
)

// A Gateway starts the network proxies of sandboxes and reads their journals of allowed and refused
// connections.
type Gateway struct {
	cat     *catalog.Catalog
	events  *events.Log
	program func() ([]string, error)
}

// New returns the gateway for the sandboxes of the catalogue cat, which appends decisions about connections
// to log. program returns the command line of a proxy process; it is called when a sandbox needs one.
func New(cat *catalog.Catalog, log *events.Log, program func() ([]string, error)) *Gateway {
	return &Gateway{cat: cat, events: log, program: program}
}
