package transfer

import (
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
)

// A Client sends named snapshots of sandboxes to other machines as streams, and receives them. It is a client
// of an engine.
type Client struct {
	engine *engine.Engine
	cat    *catalog.Catalog
	notice func(string)
}

// New returns a Client, which sends sandboxes of the engine e to other machines and receives theirs as
// streams.
func New(e *engine.Engine) *Client {
	return &Client{engine: e, cat: e.Catalog(), notice: e.Notice}
}
