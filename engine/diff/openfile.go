package diff

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// OpenFile opens a file of a tree for reading, by its path relative to the descriptor root. It follows no
// link, does not block, and leaves the access time as it is where this user may. Errors: *os.PathError.
func OpenFile(root int, path string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := vfs.OpenBeneath(root, path, flags|vfs.ONoatime, 0)
	if errors.Is(err, unix.EPERM) { // another user's file
		f, err = vfs.OpenBeneath(root, path, flags, 0)
	}
	return f, err
}

// IsBinary reports whether data is not text by git's rule: there is a NUL among the first 8000 bytes.
func IsBinary(data []byte) bool { return bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 }

// Reader returns a reader that reads from r, a file of a compared tree, and fails once ctx has ended.
func Reader(ctx context.Context, r io.Reader) io.Reader { return &ctxReader{ctx, r} }

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (p *ctxReader) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}
