package pipeline

import (
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
)

// A Runner promotes sandboxes through the stages of profiles. It is a client of an engine.
type Runner struct {
	engine *engine.Engine
	cat    *catalog.Catalog
	notice func(string)
}

// New returns a Runner that promotes sandboxes of the engine e through the stages of profiles.
func New(e *engine.Engine) *Runner {
	return &Runner{engine: e, cat: e.Catalog(), notice: e.Notice}
}
