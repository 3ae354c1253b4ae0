package diff

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// contentDiffers reports whether the content of the regular file name in the directory p differs between the
// two trees. It reads nothing if the sizes differ.
func (w *worker) contentDiffers(p dirPair, name string, st *[2]vfs.Stat) (bool, error) {
	if st[older].Size != st[newer].Size {
		return true, nil
	}
	if st[older].Size == 0 {
		return false, nil
	}
	var fd [2]int
	var errs [2]error
	for i := range fd {
		fd[i], errs[i] = openSame(p.dir[i], name, &st[i])
		if errs[i] == nil {
			defer unix.Close(fd[i])
		}
	}
	if denied(errs[older]) && denied(errs[newer]) {
		// A process without read permission did not write them either. If the times differ,
		// equality cannot be proved.
		return st[older].MTime != st[newer].MTime, nil
	}
	if err := first(errs); err != nil {
		return false, err
	}
	return w.bytesDiffer(fd, st)
}

// window is how many bytes of a compared file are read at once, 256 KiB. Digests are computed over pieces of
// this size.
const window = 256 << 10

// bytesDiffer reports whether two open files differ. It reads them side by side and skips holes that both
// have. If the newer one can no longer be read because its lower file was modified (a large file on fusecow),
// they differ.
func (w *worker) bytesDiffer(fd [2]int, st *[2]vfs.Stat) (bool, error) {
	const size = window
	for i := range w.data {
		if w.data[i] == nil {
			w.data[i] = make([]byte, size)
		}
	}
	for at := int64(0); ; at += size {
		if err := w.ctx.Err(); err != nil {
			return false, err
		}
		if st[older].Size > size {
			at = min(nextData(fd[older], at, st[older].Size), nextData(fd[newer], at, st[newer].Size))
		}
		a, err := readAt(fd[older], w.data[older], at)
		if err != nil {
			return false, err
		}
		b, err := readAt(fd[newer], w.data[newer], at)
		if err == unix.ESTALE {
			return true, nil
		}
		if err != nil || !bytes.Equal(a, b) {
			return err == nil, err
		}
		if len(a) < size {
			return false, nil
		}
	}
}

// pairs holds pairs of buffers of 128 KiB that the comparisons of many small files reuse, so that each need not
// allocate its own.
var pairs = sync.Pool{New: func() any { return new([2][128 << 10]byte) }}

// SameBytes reports whether two readers deliver the same bytes up to their ends, to compare two files. When ctx is
// cancelled, it returns the error of ctx.
func SameBytes(ctx context.Context, f, g io.Reader) (bool, error) {
	two := pairs.Get().(*[2][128 << 10]byte) //nolint:errcheck // nothing else is put there
	defer pairs.Put(two)
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err1 := io.ReadFull(f, two[0][:])
		m, err2 := io.ReadFull(g, two[1][:])
		ended := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
		switch {
		case !bytes.Equal(two[0][:n], two[1][:m]):
			return false, nil
		case ended(err1) && ended(err2):
			return true, nil
		case err1 != nil || err2 != nil:
			return false, errors.Join(err1, err2)
		}
	}
}

// readAt reads up to len(buf) bytes of a compared file from the offset at, and returns them; fewer only at
// the end of the file.
func readAt(fd int, buf []byte, at int64) ([]byte, error) {
	n := 0
	for n < len(buf) {
		got, err := unix.Pread(fd, buf[n:], at+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case got == 0:
			return buf[:n], nil
		}
		n += got
	}
	return buf, nil
}
