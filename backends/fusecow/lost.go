//go:build linux

package fusecow

import (
	"context"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fdsock"
	"golang.org/x/sys/unix"
)

var _ snapshot.ServerMonitor = (*backend)(nil)

// WaitExit waits until the process that serves a fork has exited, and reports whether it was killed while the
// fork was mounted, for [snapshot.ServerMonitor]. A server removes its socket before it exits, unless it is
// killed.
func (b *backend) WaitExit(ctx context.Context, fork snapshot.ForkID) bool {
	r, err := b.fork(fork)
	if err != nil || !waitEnd(ctx, b.socketPath(r.upper())) {
		return false
	}
	if r, err = b.fork(fork); err != nil { // it may have switched to another layer
		return false
	}
	return unix.Access(b.socketPath(r.upper()), unix.F_OK) == nil
}

var _ snapshot.ServerMonitor = (*backend)(nil)

// Noticed returns the paths, relative to the tree, of files of the real tree that had changed since the
// capture when the fork read them: the fork then saw newer content. It is for [snapshot.ServerMonitor].
func (b *backend) Noticed(_ context.Context, fork snapshot.ForkID) (all []string, err error) {
	r, err := b.fork(fork)
	if err == nil {
		all, err = lateReadsAt(b.socketPath(r.upper()))
	}
	return all, fail("reading late files of", string(fork), err)
}

// waitEnd waits until the server process of a fork, which listens at the socket path, has ended. It returns
// at once if there is none, and false if ctx ends first.
func waitEnd(ctx context.Context, path string) bool {
	p, err := fdsock.Dial(path)
	if err != nil {
		return true
	}
	defer p.Close() //nolint:errcheck // nothing is written
	if ctx.Err() != nil {
		return p.PeerEnding() // its mounts are dead then, even if it still listens
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Shutdown() }) // ends the Receive below
	_, _, _ = p.Receive()                                       // the server sends nothing: Receive returns when the server ends
	return stop() && ctx.Err() == nil
}
