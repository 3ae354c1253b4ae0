//go:build linux

package overlay

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// A Ground is a place for layers that holds them to limits by its own means, where
// the filesystem has no project quotas. On it a layer's tree and work directory lie
// in a directory of the ground's in that of the layer, "held", and what is noted of
// the layer beside it: that can be written where the layer is full.
type Ground interface {
	// Make makes an empty directory for a layer that a fork is to write to.
	Make(path string) error
	// Destroy takes such a directory away with all in it, and reports whether
	// name was one.
	Destroy(dir int, name string) (bool, error)
	// CanLimit and Limit are [snapshot.LimitProber] and [snapshot.Limiter], of the
	// directory of the layer that a fork writes to.
	CanLimit(l snapshot.DiskLimit) error
	Limit(ctx context.Context, layer string, l snapshot.DiskLimit) error
	// Succeed has the new layer next, which is empty, go on with the limit of old.
	Succeed(old, next string) error
	// Swept is called when what was removed has been destroyed.
	Swept() error
}

// A Below is what lies beneath the layers in the place of the real tree.
type Below interface {
	// Holds says why it cannot be had of the tree at path, or nil.
	Holds(path string) error
	// Serve is what mounts its layers, the topmost first, of the tree at path, beneath a fork or, "", a snapshot, whose base was
	// taken then.
	Serve(path string, taken time.Time, fork snapshot.ForkID) []snapshot.Served
}

// Backend is what this package opens.
type Backend = backend

// OpenOn is [Open] with the layers on a ground. See package quota.
func OpenOn(place snapshot.Place, g Ground) (*Backend, error) { return open(place, g, nil) }

// OpenAbove is [Open] with the layers above what is served. See package hybrid.
func OpenAbove(place snapshot.Place, tree Below) (*Backend, error) { return open(place, nil, tree) }

// LayerOf is the directory of the layer that a fork writes to. Errors: ErrNotFound,
// ErrCorrupt.
func (b *backend) LayerOf(fork snapshot.ForkID) (string, error) {
	r, err := find(string(fork), b.forkPath(fork))
	if err != nil {
		return "", fail("looking up", string(fork), err)
	}
	return b.layerPath(r.upper) + b.inner(), nil
}

// inner is where a layer's tree is, in the directory of the layer.
func (b *backend) inner() string {
	if b.ground == nil {
		return ""
	}
	return "/held"
}

// makeInner makes the directory that a layer's tree is to lie in.
func (b *backend) makeInner(layer string) error {
	if b.ground == nil {
		return nil
	}
	return b.ground.Make(b.layerPath(layer) + b.inner())
}
