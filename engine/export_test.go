package engine

import (
	"context"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// OpenState opens the workspace of a sandbox at a named state.
func (e *Engine) OpenState(ctx context.Context, name, state string) (*os.File, error) {
	rec, err := e.cat.Get(name)
	if err != nil {
		return nil, err
	}
	s, err := e.sending(ctx, rec, SendRequest{State: state})
	if err != nil {
		return nil, err
	}
	dir, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return os.Open(vfs.FDPath(dir) + "/.") // it was opened to pass through alone
}
