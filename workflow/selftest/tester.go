package selftest

import (
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise"
)

// For is an engine's Config.SelfTest.
func For(e *engine.Engine) supervise.SelfTest { return New(e).TryWalls }

// A Tester tries the walls of sandboxes from inside.
type Tester struct {
	engine *engine.Engine
	cat    *catalog.Catalog
	probe  []string
}

// New returns a Tester that works through e.
func New(e *engine.Engine) *Tester {
	return &Tester{engine: e, cat: e.Catalog(), probe: e.Probe()}
}
