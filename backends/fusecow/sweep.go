//go:build linux

package fusecow

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/fault"
)

// Sweep merges layers that are needed together only, deletes those that nothing names and nobody has
// open, what was half made, and what is in the trash, resting as long as it works, and has states thawed that
// nothing names. Where layers cannot be merged the rest is done all the same. Cost: it reads every record, the lock held exclusively meanwhile; the rest goes on without it.
func (b *backend) Sweep(ctx context.Context) error {
	if _, err := os.Lstat(b.dir); notExist(err) {
		return nil
	}
	left, err := b.clear(ctx)
	if err == nil {
		err = b.empty(ctx)
	}
	if err == nil {
		err = b.thaw(ctx, left.states)
	}
	if err == nil { // at last: merging needs room, which the rest makes
		err = b.compact(ctx, left.chains)
	}
	if left.waits || err == nil && len(left.chains) > 0 {
		b.markPending()
	}
	return fail("sweeping", "", cmp.Or(err, left.unfinished))
}

// A rest is what there is still to do when the lock is not held any more.
type pendingWork struct {
	states []stateNote // that nothing names
	chains []chain     // of layers that are worth merging
	// waits: there are layers that have to go soon.
	waits bool
	// unfinished is why the substituting of a merged layer could not be gone on with.
	unfinished error
}

// clear moves layers that nothing names into the trash, and what was half made, and
// goes on with what a killed sweep has merged. Where a record cannot be read it moves none: that
// one might have named them.
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
	for _, r := range all {
		states[r.State] = true
		for _, l := range r.Layers {
			used[l] = true
		}
		if r.Limit != nil {
			quotas[r.Limit.Quota] = true
		}
	}
	if err := fault.Point(ctx, "move dead layers into the trash"); err != nil {
		return left, err
	}
	layers, err := os.ReadDir(b.dir + "/layers")
	err = errors.Join(err, b.sweepQuotas(quotas, slices.Collect(maps.Keys(used))))
	for _, e := range layers {
		if path := b.layerPath(e.Name()); e.IsDir() && !used[e.Name()] && layer.IsLayer(path) {
			left.waits = b.trashLayer(path) || left.waits
		}
	}
	if err = errors.Join(err, b.clearTmp()); err != nil {
		return left, err
	}
	left.states, err = b.unusedStates(states)
	return left, err
}

// clearTmp takes what was half made: records are made without the lock, so those
// that are young stay.
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

const batch = 128 // entries deleted before a rest as long as they took

// empty deletes what is in the trash: layers, which are two directories deep.
func (b *backend) empty(ctx context.Context) error {
	n, since := 0, time.Now()
	var dirs []string
	err := filepath.WalkDir(b.dir+"/trash", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		} else if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !notExist(err) { // another sweep is at it
			return err
		}
		if n++; n%batch != 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Since(since)):
		}
		since = time.Now()
		return ctx.Err()
	})
	for len(dirs) > 1 && err == nil {
		_ = os.Remove(dirs[len(dirs)-1]) // what is not empty got something meanwhile
		dirs = dirs[:len(dirs)-1]
	}
	return err
}
