package compare

import (
	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
)

// A Comparer compares the states of sandboxes with each other and with the real tree. It writes nothing but
// baselines (the originals of changed paths), and is safe for concurrent use.
type Comparer struct {
	cat       *catalog.Catalog
	notice    func(string)
	host      *hostfs.Host
	baseline  *baseline.Recorder
	sandboxes *sandbox.Store
	events    *events.Log
}

// New returns the comparer for the sandboxes of the catalogue cat. It appends an event to log when it finds
// drift, and passes to notice, as text, what it had to leave out of a comparison.
func New(cat *catalog.Catalog, host *hostfs.Host, base *baseline.Recorder, sandboxes *sandbox.Store, notice func(string), log *events.Log) *Comparer {
	return &Comparer{cat: cat, notice: notice, host: host, baseline: base, sandboxes: sandboxes, events: log}
}
