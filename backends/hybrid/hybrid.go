//go:build linux

// Package hybrid keeps forks with the kernel's overlay above a tree that a process serves,
// as package fusecow does: what a sandbox makes and changes the kernel keeps, at its own
// speed, and only what it looks at below for the first time is asked of the process.
//
// So an overlay is to be had of trees that overlayfs refuses to stand on: an overlay of an
// overlay, a directory that an ordinary user has something mounted in, one that does not
// tell upper from lower case. It neither keeps what the base was nor counts, and fusecow does both:
// so it is a driver of its own.
//
// # Layout
//
// That of package overlay, and in served/ the sockets of the processes, one a fork, by
// which one more mount of the same filesystem is had.
package hybrid

import (
	"context"
	"path/filepath"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine/snapshot"
)

const name = "fusecow-overlay"

// Driver opens this backend. It holds any directory of a local filesystem. Program finds
// the program that serves trees, as for [fusecow.Driver].
func Driver(program func() ([]string, error)) snapshot.Driver {
	return snapshot.Driver{Name: name, Automatic: true, Open: func(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
		trees := fusecow.NewTrees(filepath.Join(place.Dir, "served"), program)
		b, err := overlay.OpenServed(place, trees)
		if err != nil {
			return nil, err
		}
		return &Backend{b, trees}, nil
	}}
}

// A Backend is overlay's, above what is served.
type Backend struct {
	*overlay.Backend
	trees *fusecow.Trees
}

var _ interface {
	snapshot.Backend
	snapshot.Loser
	snapshot.Noticer
} = (*Backend)(nil)

// RemoveFork keeps the contract of [snapshot.Backend].
func (b *Backend) RemoveFork(ctx context.Context, fork snapshot.ForkID) error {
	err := b.Backend.RemoveFork(ctx, fork)
	if err == nil {
		b.trees.Forget(fork)
	}
	return err
}

// Lost keeps the contract of [snapshot.Loser].
func (b *Backend) Lost(ctx context.Context, fork snapshot.ForkID) bool {
	return b.trees.Lost(ctx, fork)
}

// Noticed keeps the contract of [snapshot.Noticer].
func (b *Backend) Noticed(ctx context.Context, fork snapshot.ForkID) ([]string, error) {
	if _, err := b.LookupFork(ctx, fork); err != nil {
		return nil, err
	}
	return b.trees.Noticed(fork)
}
