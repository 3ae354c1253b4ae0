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
	later   Background // or nil
	collect func(ctx context.Context) error
}

// New returns the Store of the sandboxes in the catalogue cat. The Store appends events about sandboxes that
// it makes and removes to log, and calls notice with texts for the user. sweeper is the command that starts a
// garbage collection in the background, which later runs; if later is nil, it is run at once. If sweeper is empty,
// [Store.SweepLater] calls collect.
func New(cat *catalog.Catalog, host *hostfs.Host, notice func(string), log *events.Log, sweeper []string, later Background, collect func(context.Context) error) *Store {
	return &Store{cat: cat, notice: notice, host: host, events: log, sweeper: sweeper, later: later, collect: collect}
}

// A Background does a part of each removal later, in a program that removes many sandboxes. Its methods are safe for
// concurrent use. If the process is killed, the next removal or garbage collection does the rest.
type Background interface {
	// Sweep starts the command line of a garbage collection, now or soon.
	Sweep(args []string) error
	// Do calls f in another goroutine, or in this one if too many functions run already.
	Do(f func())
}

// startSweep starts the command line of a garbage collection, now or soon.
func (sb *Store) startSweep(args []string) error {
	if sb.later == nil {
		return run.Detached(args, nil)
	}
	return sb.later.Sweep(args)
}
