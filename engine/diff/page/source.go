package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
)

// A content is the content of a changed regular file before or after the change, as far as the page needs it;
// empty if the file does not exist then.
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

// read reads the file of the node n for the page, at path below root. It follows no symbolic link and does
// not block, because the node may have been replaced meanwhile.
func (b *builder) read(root *os.File, path string, n *diff.Node) (c content, err error) {
	if n == nil || !n.Mode.IsRegular() {
		return c, nil
	}
	f, err := diff.OpenFile(int(root.Fd()), path)
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
	from := io.LimitReader(diff.Reader(b.ctx, f), c.size)
	if !c.binary {
		var text bytes.Buffer
		text.Grow(int(c.size) + bytes.MinRead)
		from = io.TeeReader(from, &text)
		defer func() {
			c.long = bytes.Count(text.Bytes(), []byte{'\n'}) > TextLinesMax
			if c.binary = diff.IsBinary(text.Bytes()) || c.long; !c.binary {
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

// why returns in words, for the page, why a changed file could not be read: the cause of the error without
// its operation.
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
