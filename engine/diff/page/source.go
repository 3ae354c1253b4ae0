package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A content is the content of a regular file on one side, empty if that side has none.
type content struct {
	there bool
	size  int64
	// sum is the SHA-256; "" if the file was too large to be read.
	sum string
	// binary is set for a file that is not text or too large; long for one with too many
	// lines.
	binary, long bool
	text         []byte
}

// read reads the file of a node for the page. It follows no link and does not block: the node
// may have been replaced meanwhile.
func (b *builder) read(root *os.File, path string, n *diff.Node) (c content, err error) {
	if n == nil || !n.Mode.IsRegular() {
		return c, nil
	}
	const flags = syscall.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := vfs.OpenBeneath(int(root.Fd()), path, flags, 0)
	if err != nil {
		return c, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return c, err
	}
	if !info.Mode().IsRegular() {
		return c, errors.New("no longer a regular file")
	}
	c = content{there: true, size: info.Size(), binary: info.Size() > TextMax}
	if c.size > HashMax {
		return c, nil
	}
	hash := sha256.New()
	from := io.LimitReader(&ctxReader{b.ctx, f}, c.size)
	if !c.binary {
		var text bytes.Buffer
		text.Grow(int(c.size) + bytes.MinRead)
		from = io.TeeReader(from, &text)
		defer func() {
			c.long = bytes.Count(text.Bytes(), []byte{'\n'}) > TextLinesMax
			if c.binary = isBinary(text.Bytes()) || c.long; !c.binary {
				c.text = text.Bytes()
			}
		}()
	}
	if _, err := io.Copy(hash, from); err != nil {
		return c, err
	}
	c.sum = hex.EncodeToString(hash.Sum(nil))
	return c, nil
}

// isBinary applies git's rule, as in a patch: a NUL among the first 8000 bytes.
func isBinary(text []byte) bool { return bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 }

// ctxReader is a reader that ends with its context.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (p *ctxReader) Read(buf []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.r.Read(buf)
}

// why returns the cause of an error in words, without its operation.
func why(err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errs.KindOf(err) != nil:
		return errs.KindOf(err).Error()
	}
	return err.Error()
}
