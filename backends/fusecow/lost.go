//go:build linux

package fusecow

import (
	"context"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fdsock"
	"golang.org/x/sys/unix"
)

var _ snapshot.Loser = (*backend)(nil)

// Lost keeps the contract of [snapshot.Loser]. Who serves a fork takes its socket away
// before it ends, unless it was killed.
func (b *backend) Lost(ctx context.Context, fork snapshot.ForkID) bool {
	r, err := b.fork(fork)
	if err != nil || !waitEnd(ctx, b.socketPath(r.upper())) {
		return false
	}
	if r, err = b.fork(fork); err != nil { // it may have gone on with another layer
		return false
	}
	return unix.Access(b.socketPath(r.upper()), unix.F_OK) == nil
}

var _ snapshot.Noticer = (*backend)(nil)

// Noticed keeps the contract of [snapshot.Noticer].
func (b *backend) Noticed(_ context.Context, fork snapshot.ForkID) (all []string, err error) {
	r, err := b.fork(fork)
	if err == nil {
		all, err = lateReadsAt(b.socketPath(r.upper()))
	}
	return all, fail("asking", string(fork), err)
}

// ended waits until who listens at path, if somebody does, has ended. False: ctx has before.
func waitEnd(ctx context.Context, path string) bool {
	p, err := fdsock.Dial(path)
	if err != nil {
		return true
	}
	defer p.Close() //nolint:errcheck // nothing is written
	if ctx.Err() != nil {
		return p.PeerEnding() // what it showed is gone then, and it may listen still
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Shutdown() }) // it wakes the one below
	_, _, _ = p.Receive()                                       // nothing is said: it ends
	return stop() && ctx.Err() == nil
}
