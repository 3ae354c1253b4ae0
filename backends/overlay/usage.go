//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Usage returns the disk space of a fork, for [snapshot.ChangeLister]: the allocated blocks of its upper
// layer, without its frozen layers. Cost: in proportion to the layer's entries.
func (b *backend) Usage(ctx context.Context, fork snapshot.ForkID) (snapshot.Bytes, error) {
	r, err := store.Find(string(fork), b.store.ForkPath(fork))
	if err != nil {
		return 0, fail("measuring", string(fork), err)
	}
	m := meter{ctx: ctx, seen: map[uint64]bool{}}
	err = store.Walk(b.store.TreePath(r.Upper), m.visit)
	return m.sum, fail("measuring", string(fork), err)
}

// Gauge returns the disk space and inodes that count for a fork's limit, for [snapshot.Limiter]. The fork
// must have a quota project id, which the first limit gives it.
func (b *backend) Gauge(_ context.Context, fork snapshot.ForkID) (snapshot.DiskLimit, error) {
	r, err := store.Find(string(fork), b.store.ForkPath(fork))
	if err != nil {
		return snapshot.DiskLimit{}, fail("measuring", string(fork), err)
	}
	id := b.projects.ProjectOf(r.Upper)
	if id == 0 {
		return snapshot.DiskLimit{}, fail("measuring", string(fork), store.Refuse(errs.ErrNotSupported, b.store.LayerPath(r.Upper), "the fork has no limit"))
	}
	dir, err := os.Open(b.store.LayerPath(r.Upper))
	if err != nil {
		return snapshot.DiskLimit{}, fail("measuring", string(fork), err)
	}
	defer dir.Close()
	use, err := projquota.Usage(int(dir.Fd()), id)
	return snapshot.DiskLimit{Bytes: snapshot.Bytes(use.Bytes), Inodes: use.Inodes}, fail("measuring", string(fork), err)
}

type meter struct {
	ctx  context.Context
	sum  snapshot.Bytes
	seen map[uint64]bool // inodes with several links
}

// visit adds the disk space of the entries of a layer's directory, whose path in the layer is name, to the
// sum, and returns its subdirectories to visit. err is the error of opening the directory. visit skips
// directories that an ordinary user may not read.
func (m *meter) visit(name string, dir *os.File, err error) (dirs []string, _ error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err == nil {
		err = m.ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	fd := int(dir.Fd())
	err = vfs.EachEntry(fd, func(entry []byte, _ uint64, _ uint8) error {
		st, err := vfs.Lstat(fd, string(entry))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // the fork is in use
		case err != nil:
			return err
		case st.IsDir():
			dirs = append(dirs, store.Join(name, entry))
		case st.Nlink > 1 && m.seen[st.Ino]:
			return nil
		case st.Nlink > 1:
			m.seen[st.Ino] = true
		}
		m.sum += snapshot.Bytes(st.Blocks) * 512
		return nil
	})
	return dirs, err
}
