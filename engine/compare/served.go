package compare

import (
	"context"
	"errors"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/vfs"
)

// serverTries is how often Served runs its function, which reads a fork, at most, when the fork's server process is
// killed again and again. Then Served returns the last error.
const serverTries = 4

// servedKey is the key of the context value by which a call of Served inside another recognises that the
// outer one already repeats.
type servedKey struct{}

// Served runs do, and runs it again if the server process of a fork was killed meanwhile: each run opens the
// views anew, which starts a new server. It runs do at most serverTries times. A nested call of Served runs
// its own function only once. do must change nothing if it returns an error.
func Served[T any](ctx context.Context, do func(ctx context.Context) (T, error)) (T, error) {
	tries := serverTries
	if ctx.Value(servedKey{}) != nil {
		tries = 1
	}
	inner := context.WithValue(ctx, servedKey{}, true)
	for {
		result, err := do(inner)
		if tries--; tries <= 0 || !serverLost(err) || ctx.Err() != nil {
			return result, err
		}
	}
}

// serverLost reports whether err says that the server process of a FUSE mount was killed: before the request
// (ENOTCONN) or during it (ECONNABORTED).
func serverLost(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED)
}

// Lost adds ENOTCONN to an I/O error if the server process of the part's new state has been killed. The
// kernel returns EIO, too, for an inode with a request in progress at that moment. Other errors are returned
// unchanged.
func (p *Part) Lost(err error) error {
	if !errors.Is(err, syscall.EIO) || p.New == nil {
		return err
	}
	// Nothing caches the absence of a new name, so the kernel asks the server for it.
	if _, lost := vfs.Lstat(int(p.New.Fd()), ".snapfs-"+catalog.NewID()); serverLost(lost) {
		return errors.Join(err, lost)
	}
	return err
}
