//go:build linux

// Package overlayfuse stores forks by the kernel's overlayfs, above a lower tree that a
// process serves over FUSE with package fusecow. The kernel stores the changes of a sandbox at
// its own speed; the server gets a request only for the first access to a file of the lower
// tree.
//
// Trees become usable that overlayfs refuses as a lower: an overlay on an overlay, a directory
// in which an ordinary user has mounted something, a case-insensitive directory. Unlike
// fusecow it neither saves originals nor counts usage, so it is a driver of its own.
//
// # Layout
//
// The layout is that of package overlay, and the directory served/ with a socket for each
// server. There is one server for each fork, which hands out further mounts of the same
// filesystem.
package overlayfuse

import (
	"context"
	"path/filepath"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine/snapshot"
)

const name = "fusecow-overlay"

// Driver is the driver of this backend, which accepts any directory of a local filesystem.
var Driver = snapshot.Driver{Name: name, Automatic: true, Open: open}

func open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	trees := fusecow.NewTrees(filepath.Join(place.Dir, "served"), place.Server)
	b, err := overlay.OpenServed(place, trees)
	if err != nil {
		return nil, err
	}
	return &Backend{b, trees}, nil
}

// A Backend is the backend of package overlay whose lowest layer is not the real tree but a FUSE mount that
// shows it.
type Backend struct {
	*overlay.Backend
	trees *fusecow.Trees
}

var _ interface {
	snapshot.Backend
	snapshot.ServerMonitor
} = (*Backend)(nil)

// RemoveFork removes a fork, and the socket that a killed server of its lower tree has left.
func (b *Backend) RemoveFork(ctx context.Context, fork snapshot.ForkID) error {
	err := b.Backend.RemoveFork(ctx, fork)
	if err == nil {
		b.trees.Forget(fork)
	}
	return err
}

// WaitExit waits until the process that serves the fork's lower tree has exited, and reports whether it was
// killed, for [snapshot.ServerMonitor].
func (b *Backend) WaitExit(ctx context.Context, fork snapshot.ForkID) bool {
	return b.trees.WaitExit(ctx, fork)
}

// Noticed returns the paths, in the tree, of the real files that had changed since the capture when the fork
// read them, for [snapshot.ServerMonitor].
func (b *Backend) Noticed(ctx context.Context, fork snapshot.ForkID) ([]string, error) {
	if _, err := b.LookupFork(ctx, fork); err != nil {
		return nil, err
	}
	return b.trees.Noticed(fork)
}
