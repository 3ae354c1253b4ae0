package nodes

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// SameContent reports whether the regular file at inA in the tree a has the same content as that at inB in b.
// A file that is missing or has another type by now is different. When ctx is cancelled, it returns the error of ctx.
func SameContent(ctx context.Context, a *os.File, inA string, b *os.File, inB string) (bool, error) {
	f, err := OpenRegular(a, inA)
	if err != nil {
		return false, gone(err)
	}
	defer f.Close()
	g, err := OpenRegular(b, inB)
	if err != nil {
		return false, gone(err)
	}
	defer g.Close()
	if st, err := vfs.Lstat(int(f.Fd()), ""); err == nil && st.Size > sparseSize {
		return sameLarge(ctx, f, g, st.Size)
	}
	return diff.SameBytes(ctx, f, g)
}

// sparseSize is the size in bytes from which SameContent skips holes. In smaller files, looking for them
// costs more than reading.
const sparseSize = 1 << 20

// errDiffers ends the comparison of two files at the first difference.
var errDiffers = errors.New("the content differs")

// sameLarge reports whether two open files, of which f has size bytes, have the same content, as SameContent
// does, without reading the holes that both have.
func sameLarge(ctx context.Context, f, g *os.File, size int64) (bool, error) {
	st, err := vfs.Lstat(int(g.Fd()), "")
	if err != nil || st.Size != size {
		return false, err
	}
	err = diff.Extents(ctx, f, g, func(diff.Extent) error { return errDiffers })
	if errors.Is(err, errDiffers) {
		return false, nil
	}
	return err == nil, err
}

// buffers holds buffers of 128 KiB that the copies of many small files reuse, so that each need not allocate its own.
var buffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// ErrNotRegular is the error of OpenRegular for a node that is not a regular file.
var ErrNotRegular = errors.New("not a regular file")

func gone(err error) error {
	if Missing(err) || errors.Is(err, ErrNotRegular) {
		return nil
	}
	return err
}

// OpenRegular opens a regular file below a root for reading; the caller closes it. Opening a
// node of another type has no effect on it and returns ErrNotRegular.
func OpenRegular(root *os.File, path string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := openBeneath(root, path, flags|vfs.ONoatime)
	if errors.Is(err, unix.EPERM) {
		f, err = openBeneath(root, path, flags)
	}
	if err != nil {
		return nil, err
	}
	st, err := vfs.Lstat(int(f.Fd()), "")
	if err == nil && !st.IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// CopyWhole copies a file of exactly size bytes, less than 128 KiB, from the descriptor src to dst. It
// returns false, with the copy incomplete, if the file has another size and after any error.
func CopyWhole(dst, src, size int) bool {
	buf := buffers.Get().(*[128 << 10]byte) //nolint:errcheck // nothing else is put there
	defer buffers.Put(buf)
	n, err := unix.Read(src, buf[:size+1])
	if err != nil || n != size {
		return false
	}
	if size == 0 {
		return true
	}
	n, err = unix.Write(dst, buf[:size])
	return err == nil && n == size
}
