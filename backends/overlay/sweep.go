//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Sweep deletes the layers that nothing names, what was half made, and what is
// in the trash, resting as long as it works. It also merges chains that have
// grown long, and makes frozen layers safe on the disk. Cost: it reads every
// record, the lock held exclusively meanwhile; the rest goes on without it.
func (b *backend) Sweep(ctx context.Context) error {
	if gone(b.dir) {
		return nil
	}
	alive, err := b.mark(ctx)
	if err == nil {
		err = errors.Join(b.settleFrozen(ctx, alive), b.mergeLong(ctx, alive))
	}
	err = errors.Join(err, b.empty(ctx))
	if err == nil && b.ground != nil {
		err = b.ground.Swept()
	}
	return fail("sweeping", "", err)
}

// census is what the records name.
type census struct {
	used   map[string]bool // layers
	upper  map[string]bool // those that a fork writes to
	chains [][]string      // of the snapshots
}

// known are records that were read, by their paths.
type known map[string]reading

type reading struct {
	ino   uint64
	ctime vfs.Timestamp
	record
}

// mark moves layers that nothing names into the trash. Where a record cannot be
// read it moves none: that one might have named them.
func (b *backend) mark(ctx context.Context) (*census, error) {
	k := known{}
	if _, err := b.count(k); err != nil { // so that the lock is held for what changes meanwhile only
		return nil, err
	}
	unlock, err := b.lock(ctx, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := b.count(k)
	if err != nil {
		return nil, err
	}
	for _, layer := range slices.Collect(maps.Keys(c.used)) { // what stands for it is as alive
		for merged := b.mergedInto(layer); merged != "" && !c.used[merged]; merged = b.mergedInto(merged) {
			c.used[merged] = true
		}
	}
	if err := fault.Point(ctx, "move dead layers into the trash"); err != nil {
		return nil, err
	}
	return c, errors.Join(b.clearLayers(c), b.clearTmp(), b.clearOld())
}

// count takes every record in, reading those that are not known yet.
func (b *backend) count(k known) (*census, error) {
	c := &census{used: map[string]bool{}, upper: map[string]bool{}}
	for _, dir := range []string{"snapshots", "forks"} {
		ids, err := ids[string](b, dir)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			r, err := k.read(filepath.Join(b.dir, dir, id))
			if errors.Is(err, errHalf) || errors.Is(err, fs.ErrNotExist) {
				continue // its maker holds the lock when it names layers, so it is dead
			}
			if err != nil {
				return nil, err
			}
			c.add(&r)
		}
	}
	return c, nil
}

func (c *census) add(r *record) {
	for _, layer := range r.layers {
		c.used[layer] = true
	}
	if r.fork {
		c.used[r.upper], c.upper[r.upper] = true, true
	} else {
		c.chains = append(c.chains, r.layers)
	}
}

// settled is how old a change must be for any later one to have another ctime:
// clocks of filesystems move every hundredth of a second or more often.
const settled = 50 * time.Millisecond

// read is for a record that may be known: what changed it changed its ctime.
func (k known) read(path string) (record, error) {
	st, err := vfs.Lstat(unix.AT_FDCWD, path)
	if err != nil {
		return record{}, err
	}
	if r, ok := k[path]; ok && r.ino == st.Ino && r.ctime == st.CTime {
		return r.record, nil
	}
	r, err := read(path)
	if err == nil && time.Since(st.CTime.Time()) > settled {
		k[path] = reading{st.Ino, st.CTime, r}
	}
	return r, err
}

// mergedInto is the layer that stands for this one and all below it, or "".
func (b *backend) mergedInto(layer string) string {
	to, err := os.Readlink(b.layerPath(layer) + "/merged")
	to = strings.TrimPrefix(to, "../")
	if err != nil || layerName(to) != nil {
		return ""
	}
	return to
}

func (b *backend) clearLayers(c *census) error {
	entries, err := readDir(filepath.Join(b.dir, "layers"))
	for _, e := range entries {
		layer, again := e.Name(), false
		if !c.used[layer] {
			var e error
			again, e = b.bearsNone(c, layer)
			err = errors.Join(err, e)
		}
		switch {
		case again && b.putBy(layer):
		case !c.used[layer] && !gone(b.treePath(layer)):
			b.discard(b.layerPath(layer))
		case !c.used[layer]:
			_ = os.Remove(b.layerPath(layer) + b.inner())
			_ = os.Remove(b.layerPath(layer)) // half made; and if it is not empty, not ours
		case !c.upper[layer] && !gone(b.workPath(layer)):
			b.discard(b.workPath(layer)) // sealed, and then killed
		}
	}
	return err
}

// readDir: another process may be just about to make the layout.
func readDir(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return entries, err
}

// clearTmp takes what nobody is writing any more.
func (b *backend) clearTmp() error {
	dir := filepath.Join(b.dir, "tmp")
	entries, err := readDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		switch dead := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil; {
		case dead && !gone(path+b.inner()+"/"+treeDir):
			b.discard(path)
		case dead:
			_ = os.Remove(path + b.inner())
			_ = os.Remove(path) // a record, or a directory without a tree yet
		}
		unix.Close(fd)
	}
	return err
}

// settleFrozen writes out the frozen layers of this boot that are not yet safe.
func (b *backend) settleFrozen(ctx context.Context, c *census) error {
	boot, err := b.boot()
	if err != nil {
		return err
	}
	var notes []string
	for layer := range c.used {
		note := b.layerPath(layer) + "/unsettled"
		if since, err := os.Readlink(note); err == nil && since == boot {
			notes = append(notes, note)
		}
	}
	return b.writeOut(ctx, notes)
}

// mergeLong merges the chains of snapshots that have grown long.
func (b *backend) mergeLong(ctx context.Context, c *census) error {
	for _, chain := range c.chains {
		chain = b.shorten(chain)
		if len(chain) <= b.chains.long {
			continue
		}
		err := b.compact(ctx, chain)
		kind := kindOf(err)
		passed := errors.Is(kind, errs.ErrNotFound) || errors.Is(kind, errs.ErrBusy) // removed, or merged by another
		if err != nil && !passed {
			return err
		}
	}
	return nil
}
