package isolate

import (
	"context"
	"os"
)

// OpenViews x.
func OpenViews(ctx context.Context, mounts []Mount) ([]*os.File, error) {
	return nil, &Error{Op: "opening", Kind: ErrNotSupported}
}
