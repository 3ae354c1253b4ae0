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
	if _, err := os.Lstat(b.dir); notThere(err) {
		return nil
	}
	unmerged := b.compact(ctx) // where no room is left for it, above all, the rest makes some
	dead, waits, err := b.clear(ctx)
	if err == nil {
		err = b.empty(ctx)
	}
	if waits {
		b.stir()
	}
	if err == nil {
		err = b.thaw(ctx, dead)
	}
	return fail("sweeping", "", cmp.Or(err, unmerged))
}

// clear moves layers that nothing names into the trash, and what was half made, and
// answers with the notes of states that nothing names, and whether there is soon more to move. Where a record cannot be read it
// moves none: that one might have named them.
func (b *backend) clear(ctx context.Context) (dead []note, waits bool, err error) {
	unlock, err := b.lock(ctx, unix.LOCK_EX)
	if err != nil {
		return nil, waits, err
	}
	defer unlock()
	all, err := b.records()
	if err != nil {
		return nil, waits, err
	}
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
		return nil, waits, err
	}
	layers, err := os.ReadDir(b.dir + "/layers")
	err = errors.Join(err, b.sweepQuotas(quotas, slices.Collect(maps.Keys(used))))
	for _, e := range layers {
		if path := b.layerPath(e.Name()); e.IsDir() && !used[e.Name()] && layer.IsLayer(path) {
			waits = b.bury(path) || waits
		}
	}
	if err = errors.Join(err, b.clearTmp()); err != nil {
		return nil, waits, err
	}
	dead, err = b.unnamed(states)
	return dead, waits, err
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
		if err != nil && !notThere(err) { // another sweep is at it
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
