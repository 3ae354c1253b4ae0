package race

import (
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
)

// A Coordinator runs races: several attempts at one task, each in its own sandbox. It is a client of an
// engine.
type Coordinator struct {
	engine *engine.Engine
	cat    *catalog.Catalog
	notice func(string)
}

// New returns a Coordinator that runs races, several attempts at one task, in sandboxes of the engine e.
func New(e *engine.Engine) *Coordinator {
	return &Coordinator{engine: e, cat: e.Catalog(), notice: e.Notice}
}
