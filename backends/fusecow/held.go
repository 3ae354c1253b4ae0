//go:build linux

package fusecow

import (
	"context"
	"os"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/heldspace"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

var _ snapshot.Meter = (*backend)(nil)

// MeasureExclusive returns the disk space of the layers that only the snapshots ids have, for [snapshot.Meter]. A merged
// layer shares the content that is still needed with the layers it was merged from, and that counts once. The snapshots
// of a fork have its layers, which the fork needs too until Seal has merged them. Cost: reading all records, and a look
// at each file of the layers of these snapshots; where they share content, also of all other layers.
func (b *backend) MeasureExclusive(ctx context.Context, ids []snapshot.ID) ([]snapshot.Bytes, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	held, err := b.measureHeld(ctx, ids)
	return held, fail("measuring", "", err)
}

func (b *backend) measureHeld(ctx context.Context, ids []snapshot.ID) ([]snapshot.Bytes, error) {
	if _, err := os.Lstat(b.dir); notExist(err) {
		return make([]snapshot.Bytes, len(ids)), nil
	}
	mine, others, err := b.layerHolders(ctx, ids)
	if err != nil {
		return nil, err
	}
	m := &heldspace.Meter{}
	for name, l := range mine {
		shares := false
		err := m.AddTree(ctx, b.layerPath(name), l.last, func(string) { shares = true })
		if err == nil && shares {
			err = b.addCopied(m, name, &l.of)
		}
		if err != nil {
			return nil, err
		}
	}
	if m.NeedsOthers() {
		for _, name := range others {
			if err := m.AddTree(ctx, b.layerPath(name), heldspace.Other, nil); err != nil {
				return nil, err
			}
		}
	}
	return snapshot.SumExclusive(len(ids), func(add func(snapshot.Bytes, int)) {
		m.Each(func(size int64, last int) { add(snapshot.Bytes(size), last) })
	}), nil
}

// A heldLayer is a layer that only measured snapshots have: the record of one of them, and the index of the last.
type heldLayer struct {
	of   record
	last int
}

// layerHolders returns the layers that only the snapshots ids have, and the names of all other layers. It holds the lock
// exclusively, so that no fork or snapshot gets a layer meanwhile.
func (b *backend) layerHolders(ctx context.Context, ids []snapshot.ID) (mine map[string]heldLayer, others []string, err error) {
	index := make(map[string]int, len(ids))
	for i, id := range ids {
		index[b.snapshotPath(id)] = i
	}
	unlock, err := b.lock(ctx, unix.LOCK_EX)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	all, err := b.records()
	if err != nil {
		return nil, nil, err
	}
	mine, needed := map[string]heldLayer{}, map[string]bool{} // needed: whether anything but the snapshots ids has the layer
	for _, r := range all {
		i, measured := index[r.path]
		for _, name := range r.Layers {
			if needed[name] = needed[name] || !measured; measured {
				mine[name] = heldLayer{r.record, max(i, mine[name].last)}
			}
		}
	}
	for name, byOthers := range needed {
		if byOthers {
			delete(mine, name)
			others = append(others, name)
		}
	}
	return mine, others, nil
}

// addCopied adds the files of the real tree whose content the layer name of the record r has copied to m, as files that
// stay: a copy may share their blocks.
func (b *backend) addCopied(m *heldspace.Meter, name string, r *record) error {
	lower, err := b.lowerPath(r)
	if err != nil {
		return err
	}
	paths, err := logfile.CopiedFrom(b.layerPath(name))
	if err != nil {
		return err
	}
	root, err := vfs.OpenDir(unix.AT_FDCWD, lower)
	if notExist(err) {
		return nil // no file of it shares blocks any more
	}
	if err != nil {
		return err
	}
	defer root.Close()
	for _, path := range paths {
		if st, err := vfs.Lstat(int(root.Fd()), path); err == nil { // otherwise the file is gone
			m.Add(int(root.Fd()), path, &st, heldspace.Other)
		}
	}
	return nil
}
