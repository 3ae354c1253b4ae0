//go:build linux

package overlay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// RestoreFork writes the record of a fork again, the small file that names its layers, if the file is damaged or not a
// record at all. base is the snapshot from which the fork was made. It changes no layer, and no sound record.
//
// It finds the fork's upper layer by its name, and takes the lower layers from the base. A fork of which snapshots were
// made has further layers between the two, whose order is lost with the record. Errors: ErrCorrupt for such a fork, and
// for one without an upper layer; ErrNotSupported for a record of a newer snapfs; those of reading the records.
func (b *backend) RestoreFork(ctx context.Context, id snapshot.ForkID, base snapshot.ID) error {
	return fail("restoring", string(id), b.restoreFork(ctx, id, base))
}

func (b *backend) restoreFork(ctx context.Context, id snapshot.ForkID, base snapshot.ID) error {
	if err := store.CheckID(ctx, string(id)); err != nil {
		return err
	}
	unlock, err := b.store.Lock(ctx, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	path := b.store.ForkPath(id)
	if _, err := store.Find(string(id), path); err == nil || errors.Is(errs.KindOfFile(err), errs.ErrNotSupported) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return store.Refuse(errs.ErrCorrupt, path, "no regular file is there")
	}
	r, err := store.Find(string(base), b.store.SnapshotPath(base))
	if err != nil {
		return err
	}
	upper, err := b.onlyLayerOf(id)
	if err != nil {
		return err
	}
	// The restored record names no boot. If the kernel has marked the layer as written without syncs, the fork is
	// therefore refused later: a crash may have lost its last writes.
	r.Fork, r.Base, r.Upper = true, string(base), upper
	r.Whole = r.Whole || len(r.Layers) == 0
	r.Layers = b.store.Shorten(r.Layers)
	return b.store.Replace(ctx, path, &r)
}

// onlyLayerOf returns the name of the layer of the fork id. It returns ErrCorrupt if the fork has none, or several, as it
// has after a snapshot of it.
func (b *backend) onlyLayerOf(id snapshot.ForkID) (layer string, err error) {
	dir := filepath.Join(b.store.Dir, "layers")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), string(id)+"-")
		if !ok || strings.Contains(rest, "-") || store.IsGone(b.store.TreePath(e.Name())) {
			continue
		}
		if layer != "" {
			return "", store.Refuse(errs.ErrCorrupt, dir, "the fork has several layers, so that their order is not known")
		}
		layer = e.Name()
	}
	if layer == "" {
		return "", store.Refuse(errs.ErrCorrupt, dir, "the fork has no layer")
	}
	return layer, nil
}
