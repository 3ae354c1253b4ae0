package reconcile

import (
	"context"
	"sync"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/engine/supervise"
)

// Reconciler promotes the changes of sandboxes to the real tree, undoes that, and refreshes sandboxes with changes of
// the real tree. It is safe for concurrent use, by any number of processes.
type Reconciler struct {
	cat       *catalog.Catalog
	notice    func(string)
	events    *events.Log
	host      *hostfs.Host
	sandboxes *sandbox.Store
	baseline  *baseline.Recorder
	compare   *compare.Comparer
	supervise *supervise.Manager
	stages    *stages.Store
	keyPoints *keypoint.Taker
	manifest  func(context.Context, *catalog.Record) error // or nil

	mu         sync.Mutex
	unfinished []Unfinished // the killed promotions whose targets could not be opened at the last recovery
}

// Parts are the packages with which a Reconciler promotes and refreshes sandboxes, for [New].
type Parts struct {
	Catalog   *catalog.Catalog
	Host      *hostfs.Host
	Sandboxes *sandbox.Store
	Baseline  *baseline.Recorder
	Compare   *compare.Comparer
	Supervise *supervise.Manager
	Stages    *stages.Store
	KeyPoints *keypoint.Taker
	Notice    func(string) // gets messages for the user
	Events    *events.Log
	// Manifest records the changed files of a sandbox before they are promoted; an error refuses it. It may be nil.
	Manifest func(ctx context.Context, rec *catalog.Record) error
}

// New returns a Reconciler, which promotes and refreshes sandboxes by means of these packages.
func New(p Parts) *Reconciler {
	return &Reconciler{
		cat: p.Catalog, notice: p.Notice, events: p.Events, host: p.Host, sandboxes: p.Sandboxes, baseline: p.Baseline,
		compare: p.Compare, supervise: p.Supervise, stages: p.Stages, keyPoints: p.KeyPoints,
		manifest: p.Manifest,
	}
}
