//go:build linux

package overlay

import (
	"time"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A LowerServer serves the lower tree, in place of a path of the real tree.
type LowerServer interface {
	// Holds returns the reason why the tree at path cannot be served, or nil.
	Holds(path string) error
	// Serve returns the lower layers, topmost first, that show the tree at path. They belong to a
	// fork, or to a snapshot if fork is "", whose base was taken at this time.
	Serve(path string, taken time.Time, fork snapshot.ForkID) []snapshot.Served
}

// Backend is the backend that this package opens.
type Backend = backend

// OpenOn is [Open] with the layers on a storage that limits them. See package overlayquota.
func OpenOn(place snapshot.Place, g store.QuotaStorage) (*Backend, error) { return open(place, g, nil) }

// OpenServed is [Open] with the layers above a served tree. See package overlayfuse.
func OpenServed(place snapshot.Place, tree LowerServer) (*Backend, error) {
	return open(place, nil, tree)
}

// LayerOf returns the directory of a fork's upper layer. Errors: ErrNotFound, ErrCorrupt.
func (b *backend) LayerOf(fork snapshot.ForkID) (string, error) {
	r, err := store.Find(string(fork), b.store.ForkPath(fork))
	if err != nil {
		return "", fail("looking up", string(fork), err)
	}
	return b.store.LayerPath(r.Upper) + b.store.Inner(), nil
}
