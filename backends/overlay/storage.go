//go:build linux

package overlay

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// A QuotaStorage is a storage of layers that can limit their size by means of its own, for filesystems
// without project quotas. With it, the tree and the work directory of a layer are in a subdirectory
// of the layer, "held", which the storage provides. The notes of the layer are beside that
// subdirectory, so that they can be written while it is full.
type QuotaStorage interface {
	// Make makes an empty directory for an upper layer.
	Make(path string) error
	// Destroy deletes such a directory with its content, and reports whether name was one.
	Destroy(dir int, name string) (bool, error)
	// CanLimit and Limit are [snapshot.LimitProber] and [snapshot.Limiter] for the directory of a
	// fork's upper layer.
	CanLimit(l snapshot.DiskLimit) error
	Limit(ctx context.Context, layer string, l snapshot.DiskLimit) error
	// InheritLimit applies the limit of the layer old to the new, empty layer next as well.
	InheritLimit(old, next string) error
	// Swept is called after a sweep has deleted all removed layers.
	Swept() error
}

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

// OpenOn is [Open] with the layers on a storage that limits them. See package quota.
func OpenOn(place snapshot.Place, g QuotaStorage) (*Backend, error) { return open(place, g, nil) }

// OpenServed is [Open] with the layers above a served tree. See package overlayfuse.
func OpenServed(place snapshot.Place, tree LowerServer) (*Backend, error) {
	return open(place, nil, tree)
}

// LayerOf returns the directory of a fork's upper layer. Errors: ErrNotFound, ErrCorrupt.
func (b *backend) LayerOf(fork snapshot.ForkID) (string, error) {
	r, err := find(string(fork), b.store.forkPath(fork))
	if err != nil {
		return "", fail("looking up", string(fork), err)
	}
	return b.store.layerPath(r.upper) + b.store.inner(), nil
}

// inner is the path of the storage's directory relative to the directory of a layer.
func (s *store) inner() string {
	if s.storage == nil {
		return ""
	}
	return "/held"
}

// makeInner makes the storage's directory of a layer.
func (s *store) makeInner(layer string) error {
	if s.storage == nil {
		return nil
	}
	return s.storage.Make(s.layerPath(layer) + s.inner())
}
