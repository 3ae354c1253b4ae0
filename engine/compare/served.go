package compare

import (
	"context"
	"errors"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/vfs"
)

// serverTries bounds how often Served runs its function.
const serverTries = 4

// servedKey marks a context below Served.
type servedKey struct{}

// Served runs do, and runs it again if the server process of a fork was killed meanwhile: each run opens
// the views anew, which starts a new server. It runs do at most serverTries times. Within do,
// a further Served runs its own function only once. do must change nothing if it returns an
// error.
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

// serverLost reports whether an error says that the process behind a FUSE mount was killed: before
// the request (ENOTCONN) or while it was under way (ECONNABORTED).
func serverLost(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED)
}

// Lost adds ENOTCONN to an I/O error if the server of the part's new state has been killed: the
// kernel returns EIO, too, for an inode of which a request was under way. Other errors stay as they
// are.
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
