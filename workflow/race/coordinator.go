package race

import (
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
)

// A Coordinator runs races. It is a client of an engine.
type Coordinator struct {
	engine *engine.Engine
	cat    *catalog.Catalog
	notice func(string)
}

// New returns a Coordinator that uses the engine e.
func New(e *engine.Engine) *Coordinator {
	return &Coordinator{engine: e, cat: e.Catalog(), notice: e.Notice}
}
