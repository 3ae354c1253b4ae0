//go:build linux

package fusecow

import (
	"context"
	"iter"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A liveBackend is a [backend] with live bases: files that a fork has not changed are read from the real tree
// as it is now. For promotion and drift it saves the bytes that files had before a fork changed them.
type liveBackend struct{ *backend }

var _ snapshot.OriginalStore = liveBackend{}

// Originals yields the states that files of the real tree had before the fork changed them, for
// [snapshot.OriginalStore]. The fork's layers save the content of files up to 1 MiB when they are written to,
// truncated or replaced by a rename. Saved content counts for no limit.
func (k liveBackend) Originals(ctx context.Context, base snapshot.ID, fork snapshot.ForkID) iter.Seq2[snapshot.Original, error] {
	return func(yield func(snapshot.Original, error) bool) {
		all, err := k.originals(ctx, base, fork)
		if err != nil {
			yield(snapshot.Original{}, fail("comparing", string(fork), err))
			return
		}
		for _, o := range all {
			if !yield(snapshot.Original{
				Path: o.Path, OnlyRead: o.Stat.Mode == 0, Ino: o.Stat.Ino, Mode: o.Stat.FileMode(), UID: o.Stat.UID, GID: o.Stat.GID, Size: o.Stat.Size,
				MTime: o.Stat.MTime.Time(), CTime: o.Stat.CTime.Time(), Xattrs: o.Xattrs, Content: o.File,
			}, nil) {
				return
			}
		}
	}
}

func (b *backend) originals(ctx context.Context, base snapshot.ID, fork snapshot.ForkID) ([]logfile.Original, error) {
	from, err := b.snapshot(base)
	if err != nil {
		return nil, err
	}
	r, err := b.flushed(ctx, fork)
	if err != nil {
		return nil, err
	}
	common := r.layersUpTo(from.index(len(from.Layers) - 1))
	if r.Tree != from.Tree || common < 0 || r.Base == "" {
		return nil, because(errs.ErrNotSupported, b.forkPath(fork), "the fork does not come from this base")
	}
	return logfile.Originals(b.layerPaths(&r)[common:])
}
