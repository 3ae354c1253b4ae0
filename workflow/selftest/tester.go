package selftest

import (
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise"
)

// For returns the function with which the engine e tests the isolation at the start of a sandbox (its
// Config.SelfTest).
func For(e *engine.Engine) supervise.SelfTest { return New(e).tryWalls }

// A Tester tests the isolation of sandboxes: it starts sandboxes by the engine, and in them a program that
// tries to break out.
type Tester struct {
	engine *engine.Engine
	cat    *catalog.Catalog
	probe  []string
}

// New returns a Tester, which starts sandboxes by the engine e and in them programs that try to break out.
func New(e *engine.Engine) *Tester {
	return &Tester{engine: e, cat: e.Catalog(), probe: e.Probe()}
}
