package egress

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
)

// A Gateway starts the network proxy of a sandbox and reads its journal.
type Gateway struct {
	cat     *catalog.Catalog
	events  *events.Log
	program func() ([]string, error)
}

// New returns the gateway of a catalogue's sandboxes, which announces decisions in log. program returns the
// command of a proxy process; it is called when a sandbox needs one.
func New(cat *catalog.Catalog, log *events.Log, program func() ([]string, error)) *Gateway {
	return &Gateway{cat: cat, events: log, program: program}
}
