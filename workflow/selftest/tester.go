package selftest

import (
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise"
)

// For returns the function for Config.SelfTest of an engine.
func For(e *engine.Engine) supervise.SelfTest { return New(e).tryWalls }

// A Tester tests the isolation of sandboxes from inside.
type Tester struct {
	engine *engine.Engine
	cat    *catalog.Catalog
	probe  []string
}

// New returns a Tester that uses the engine e.
func New(e *engine.Engine) *Tester {
	return &Tester{engine: e, cat: e.Catalog(), probe: e.Probe()}
}
