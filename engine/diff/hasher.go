package diff

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"syscall"
)

// A Hasher computes the SHA-256 of whole files, one after another, with one buffer for all. The zero value is
// ready. [Digest] is the faster one for a file with holes.
type Hasher struct {
	h   hash.Hash
	buf []byte
}

// Sum returns the SHA-256 of the whole regular file fd, in hexadecimal. It reads the file from its beginning
// and does not move its position.
func (s *Hasher) Sum(ctx context.Context, fd int) (string, error) {
	if s.h == nil {
		s.h, s.buf = sha256.New(), make([]byte, 128<<10)
	}
	s.h.Reset()
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := syscall.Pread(fd, s.buf, at)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return "", err
		case n == 0:
			return hex.EncodeToString(s.h.Sum(s.buf[:0])), nil
		default:
			s.h.Write(s.buf[:n])
			at += int64(n)
		}
	}
}
