package stream

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"time"
)

// A restarted transfer is compared with the partial file of an earlier attempt, so that a
// shorter attempt never truncates it. From the first difference, or from the file's end, the
// new payload replaces the rest.

// restart sets up the file for a payload that is received from its first byte, although an earlier attempt
// may have stored a part.
func (k *PartialFile) restart(l Header) error {
	r, had, err := Open(io.NewSectionReader(k.f, 0, 1<<62))
	if err == nil && had.ID == l.ID && had.Base == l.Base {
		k.old = r
		return nil
	}
	var head bytes.Buffer
	if err := newWriter(&head, sha256.New()).header(l); err != nil {
		return err
	}
	k.replaceFrom(0, head.Bytes())
	return nil
}

// replaceFrom makes the next write replace the content of the file, a received part of a stream, from the
// offset at on, beginning with first. Nothing changes on disk before that.
func (k *PartialFile) replaceFrom(at int64, first []byte) {
	k.old, k.size, k.checkAt = nil, at, at
	k.replacing, k.first = true, first
	k.w = newWriter(spaceChecked{k}, noSum())
}

// skipEqual compares the received bytes b with those that an earlier attempt stored in the file, and returns
// the bytes that the file lacks. It returns an error if there is no disk space to store them.
func (k *PartialFile) skipEqual(b []byte) (rest []byte, err error) {
	for k.old != nil && len(b) > 0 {
		start := k.old.complete
		if len(k.old.rest) == 0 {
			if err := k.old.next(); err != nil || len(k.old.rest) == 0 {
				k.replaceFrom(start, nil)
				break
			}
			if err := k.checkSpace(k.old.complete); err != nil {
				return nil, err
			}
			k.start = start
		}
		n := commonPrefix(b, k.old.rest)
		b, k.old.rest = b[n:], k.old.rest[n:]
		k.bytes += int64(n)
		if left := len(k.old.rest); len(b) > 0 && left > 0 { // keep the equal part of the frame
			frame := k.old.buf[:k.old.complete-k.start-8]
			k.replaceFrom(k.start, nil)
			if _, err := k.w.Write(frame[:len(frame)-left]); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// commonPrefix returns how many bytes at the beginning of a and b, two attempts at receiving a stream, are
// equal.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// reuseOld returns the size of the payload that an earlier attempt stored, if this attempt received no more,
// and renews the file's time. Otherwise it returns 0.
func (k *PartialFile) reuseOld() (bytes int64, err error) {
	if k.old == nil && !k.replacing {
		return 0, nil
	}
	if had, _, err := scan(k.f); err == nil && had.Bytes > 0 && had.Bytes >= k.bytes {
		now := time.Now()
		return had.Bytes, os.Chtimes(k.f.Name(), now, now)
	}
	return 0, nil
}
