package transfer

import (
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
)

// A Client sends named snapshots of sandboxes to other machines and receives them.
type Client struct {
	engine *engine.Engine
	cat    *catalog.Catalog
	notice func(string)
}

// New returns a Client that uses the engine e.
func New(e *engine.Engine) *Client {
	return &Client{engine: e, cat: e.Catalog(), notice: e.Notice}
}
