package parcel

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"time"
)

// A stream that begins anew, where a beginning of it is kept, is compared with that: an
// attempt that breaks sooner takes nothing from it. As of where it ends, or is other than
// what comes, the rest is kept in its place.

// anew begins to keep a stream from its first byte.
func (k *Kept) anew(l Label) error {
	r, had, err := Open(io.NewSectionReader(k.f, 0, 1<<62))
	if err == nil && had.ID == l.ID && had.Base == l.Base {
		k.old = r
		return nil
	}
	var head bytes.Buffer
	if err := newWriter(&head, sha256.New()).label(l); err != nil {
		return err
	}
	k.replace(0, head.Bytes())
	return nil
}

// replace has what comes from now on take the place of what is in the file as of an offset, once there
// is a frame of it, with first before it.
func (k *Kept) replace(at int64, first []byte) {
	k.old, k.size, k.next = nil, at, at
	k.instead, k.first = true, first
	k.w = newWriter(counted{k}, noSum())
}

// same compares what comes with what is kept already, and answers with what of it is not
// there. Error: no room to keep that.
func (k *Kept) same(b []byte) (rest []byte, err error) {
	for k.old != nil && len(b) > 0 {
		start := k.old.whole
		if len(k.old.rest) == 0 {
			if err := k.old.next(); err != nil || len(k.old.rest) == 0 {
				k.replace(start, nil)
				break
			}
			if err := k.leavesRoom(k.old.whole); err != nil {
				return nil, err
			}
			k.start = start
		}
		n := common(b, k.old.rest)
		b, k.old.rest = b[n:], k.old.rest[n:]
		k.bytes += int64(n)
		if left := len(k.old.rest); len(b) > 0 && left > 0 { // of the frame, what was the same stays
			frame := k.old.buf[:k.old.whole-k.start-8]
			k.replace(k.start, nil)
			if _, err := k.w.Write(frame[:len(frame)-left]); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// common is how many bytes two begin with that are the same.
func common(a, b []byte) int {
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

// stays answers with how much of the stream was kept before, where that is as much as has
// come now; and it is kept from now on.
func (k *Kept) stays() (bytes int64, err error) {
	if k.old == nil && !k.instead {
		return 0, nil
	}
	if had, _, err := scan(k.f); err == nil && had.Bytes > 0 && had.Bytes >= k.bytes {
		now := time.Now()
		return had.Bytes, os.Chtimes(k.f.Name(), now, now)
	}
	return 0, nil
}
