package sandbox

import (
	"context"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/run"
)

// A Store creates, changes and removes sandboxes on disk: their records in the catalogue together with their
// trees in the backends. It is safe for concurrent use, by any number of processes.
type Store struct {
	cat     *catalog.Catalog
	notice  func(string)
	host    *hostfs.Host
	events  *events.Log
	sweeper []string
	start   func(args []string) error
	collect func(ctx context.Context) error
}

// New returns the Store of the sandboxes in the catalogue cat. The Store appends events about sandboxes that
// it makes and removes to log, and calls notice with texts for the user. sweeper is the command that starts a
// garbage collection in the background, which start runs, now or soon; if start is nil, it is run at once. If
// sweeper is empty, [Store.SweepLater] calls collect.
func New(cat *catalog.Catalog, host *hostfs.Host, notice func(string), log *events.Log, sweeper []string, start func([]string) error, collect func(context.Context) error) *Store {
	if start == nil {
		start = func(args []string) error { return run.Detached(args, nil) }
	}
	return &Store{cat: cat, notice: notice, host: host, events: log, sweeper: sweeper, start: start, collect: collect}
}
