//go:build linux

package overlay

import (
	"time"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A LowerServer is a process that serves real trees as FUSE mounts. The lowest layer of the overlay is then
// such a mount, not the path of the real tree. Package overlayfuse provides one.
type LowerServer interface {
	// Holds returns nil if a process can serve the real tree at path as the lowest layer of an overlay, or
	// the reason why not.
	Holds(path string) error
	// Serve returns the lower layers, topmost first, that show the tree at path. They are served for fork, or
	// for a snapshot if fork is "". taken is the time at which the base was captured.
	Serve(path string, taken time.Time, fork snapshot.ForkID) []snapshot.Served
}

// Backend is the type of the backend that [Open] returns. Packages overlayquota and overlayfuse embed it and
// add methods.
type Backend = backend

// OpenOn opens the backend as [Open] does, but stores the layers by g, which limits their size. Package
// overlayquota uses it.
func OpenOn(place snapshot.Place, g store.QuotaStorage) (*Backend, error) { return open(place, g, nil) }

// OpenServed opens the backend as [Open] does, but with FUSE mounts of the real tree, which the server tree
// makes, as the lowest layers. Package overlayfuse uses it.
func OpenServed(place snapshot.Place, tree LowerServer) (*Backend, error) {
	return open(place, nil, tree)
}

// LayerOf returns the directory of a fork's upper layer, which holds the fork's changes, for package
// overlayquota. Errors: ErrNotFound, ErrCorrupt.
func (b *backend) LayerOf(fork snapshot.ForkID) (string, error) {
	r, err := store.Find(string(fork), b.store.ForkPath(fork))
	if err != nil {
		return "", fail("looking up", string(fork), err)
	}
	return b.store.LayerPath(r.Upper) + b.store.Inner(), nil
}
