//go:build linux

package fusecow

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
)

var _ snapshot.Loser = (*backend)(nil)

// Lost keeps the contract of [snapshot.Loser]. Who serves a fork takes its socket away
// before it ends, unless it was killed.
func (b *backend) Lost(ctx context.Context, fork snapshot.ForkID) bool {
	r, err := b.fork(fork)
	if err != nil {
		return false
	}
	p, err := kernel.DialPacket(b.askPath(r.upper()))
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = p.Shutdown() }) // it wakes the one below
		_, _, _ = p.Receive()                                       // nothing is said: it ends
		if !stop() || ctx.Err() != nil {
			_ = p.Close() // nothing is written
			return false
		}
		_ = p.Close() // nothing is written
	}
	if r, err = b.fork(fork); err != nil { // it may have gone on with another layer
		return false
	}
	return unix.Access(b.askPath(r.upper()), unix.F_OK) == nil
}
