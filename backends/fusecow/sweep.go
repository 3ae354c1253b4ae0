//go:build linux

package fusecow

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/trash"
	"golang.org/x/sys/unix"
)

// Sweep does the background work of this backend:
//
//   - It deletes layers that no record names and no process has open, interrupted creations, and the trash,
//     pausing for as long as it works.
//   - It deletes frozen states that no record names.
//   - It merges layers that are only needed together, and continues if that fails.
//
// Cost: reading every record, with the lock held exclusively; deleting and merging work without the lock.
func (b *backend) Sweep(ctx context.Context) error {
	if _, err := os.Lstat(b.dir); notExist(err) {
		return nil
	}
	left, err := b.clear(ctx)
	if err == nil {
		err = trash.Empty(ctx, b.dir+"/trash", trash.Options{})
	}
	if err == nil {
		err = b.thaw(ctx, left.states)
	}
	if err == nil { // last, because merging needs space, which the rest frees
		err = b.compact(ctx, left.chains)
	}
	if left.waits || err == nil && len(left.chains) > 0 {
		b.markPending()
	}
	return fail("sweeping", "", cmp.Or(err, left.unfinished))
}

// pendingWork is what is left of a sweep after the part that needs the lock: frozen states to delete, and
// layers to merge.
type pendingWork struct {
	states []stateNote // that no record names
	chains []chain     // of layers worth merging
	// waits is set if some layers can be removed soon, but not yet.
	waits bool
	// unfinished is the error of an interrupted merge that could not be completed.
	unfinished error
}

// clear moves unused layers and interrupted creations into the trash, and completes merges that an earlier
// sweep began. It returns the work that is left. If it cannot read a record it moves no layers, because that
// record may name them.
func (b *backend) clear(ctx context.Context) (left pendingWork, err error) {
	unlock, err := b.lock(ctx, unix.LOCK_EX)
	if err != nil {
		return left, err
	}
	defer unlock()
	all, err := b.records()
	if err != nil {
		return left, err
	}
	left.unfinished = b.finishMerges(ctx, all)
	left.chains = b.chains(all)
	used, quotas, states := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var charged []string // layers that count for a disk limit
	for _, r := range all {
		states[r.State] = true
		for _, l := range r.Layers {
			used[l] = true
		}
		if r.Limit != nil {
			quotas[r.Limit.Quota] = true
			charged = append(charged, r.Layers[r.Own:]...)
		}
	}
	if err := fault.Point(ctx, "move dead layers into the trash"); err != nil {
		return left, err
	}
	layers, err := os.ReadDir(b.dir + "/layers")
	err = errors.Join(err, b.sweepQuotas(quotas, charged))
	for _, e := range layers {
		if path := b.layerPath(e.Name()); e.IsDir() && !used[e.Name()] && logfile.IsLayer(path) {
			left.waits = b.trashLayer(path) || left.waits
		}
	}
	if err = errors.Join(err, b.clearTmp()); err != nil {
		return left, err
	}
	left.states, err = b.unusedStates(states)
	return left, err
}

// clearTmp moves old entries of tmp/, left by killed processes, into the trash. Young records stay, because
// they are created without the lock.
func (b *backend) clearTmp() error {
	entries, err := os.ReadDir(b.dir + "/tmp")
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && (info.IsDir() || time.Since(info.ModTime()) > time.Minute) {
			b.discard(filepath.Join(b.dir, "tmp", e.Name()))
		}
	}
	return err
}
