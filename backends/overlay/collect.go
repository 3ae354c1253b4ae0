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

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// liveLayers lists the layers that records name.
type liveLayers struct {
	used   map[string]bool // all layers
	upper  map[string]bool // the upper layers of forks
	chains [][]string      // the layers of each snapshot
}

// recordCache caches records by path.
type recordCache map[string]cachedRecord

type cachedRecord struct {
	ino   uint64
	ctime vfs.Timestamp
	record
}

// mark moves layers that no record names into the trash. If a record cannot be read it moves none,
// because that record may name any of them.
func (s *store) mark(ctx context.Context, free func(c *liveLayers, layer string) (bool, error)) (*liveLayers, error) {
	k := recordCache{}
	if _, err := s.count(k); err != nil { // without the lock, so that under it only new records are read
		return nil, err
	}
	unlock, err := s.lock(ctx, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := s.count(k)
	if err != nil {
		return nil, err
	}
	for _, layer := range slices.Collect(maps.Keys(c.used)) { // a merged layer lives as long as the layers that it replaces
		for merged := s.mergedInto(layer); merged != "" && !c.used[merged]; merged = s.mergedInto(merged) {
			c.used[merged] = true
		}
	}
	if err := fault.Point(ctx, "move dead layers into the trash"); err != nil {
		return nil, err
	}
	return c, errors.Join(s.clearLayers(c, free), s.clearTmp(), s.clearOld())
}

// count reads all records that the cache does not have, and returns the layers they name.
func (s *store) count(k recordCache) (*liveLayers, error) {
	c := &liveLayers{used: map[string]bool{}, upper: map[string]bool{}}
	for _, dir := range []string{"snapshots", "forks"} {
		ids, err := ids[string](s, dir)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			r, err := k.read(filepath.Join(s.dir, dir, id))
			if errors.Is(err, errIncomplete) || errors.Is(err, fs.ErrNotExist) {
				continue // a maker that has named layers holds the lock, so this one is dead
			}
			if err != nil {
				return nil, err
			}
			c.add(&r)
		}
	}
	return c, nil
}

func (c *liveLayers) add(r *record) {
	for _, layer := range r.layers {
		c.used[layer] = true
	}
	if r.fork {
		c.used[r.upper], c.upper[r.upper] = true, true
	} else {
		c.chains = append(c.chains, r.layers)
	}
}

// ctimeResolution is the age from which on a file's ctime differs from that of every later change: the
// clocks of filesystems advance at least every hundredth of a second.
const ctimeResolution = 50 * time.Millisecond

// read returns the record at path from the cache, unless its ctime or inode has changed.
func (k recordCache) read(path string) (record, error) {
	st, err := vfs.Lstat(unix.AT_FDCWD, path)
	if err != nil {
		return record{}, err
	}
	if r, ok := k[path]; ok && r.ino == st.Ino && r.ctime == st.CTime {
		return r.record, nil
	}
	r, err := read(path)
	if err == nil && time.Since(st.CTime.Time()) > ctimeResolution {
		k[path] = cachedRecord{st.Ino, st.CTime, r}
	}
	return r, err
}

// mergedInto returns the layer that replaces this one and all below it, or "".
func (s *store) mergedInto(layer string) string {
	to, err := os.Readlink(s.layerPath(layer) + "/merged")
	to = strings.TrimPrefix(to, "../")
	if err != nil || layerName(to) != nil {
		return ""
	}
	return to
}

func (s *store) clearLayers(c *liveLayers, free func(c *liveLayers, layer string) (bool, error)) error {
	entries, err := readDir(filepath.Join(s.dir, "layers"))
	for _, e := range entries {
		layer, again := e.Name(), false
		if !c.used[layer] {
			var e error
			again, e = free(c, layer)
			err = errors.Join(err, e)
		}
		switch {
		case again && s.keepSpare(layer):
		case !c.used[layer] && !gone(s.treePath(layer)):
			s.toTrash(s.layerPath(layer))
		case !c.used[layer]:
			_ = os.Remove(s.layerPath(layer) + s.inner())
			_ = os.Remove(s.layerPath(layer)) // incomplete; if it is not empty, it is not ours
		case !c.upper[layer] && !gone(s.workPath(layer)):
			s.toTrash(s.workPath(layer)) // the process was killed after the seal
		}
	}
	return err
}

// readDir lists a directory, which may not exist before another process has made the layout.
func readDir(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return entries, err
}

// clearTmp discards entries that no living process writes.
func (s *store) clearTmp() error {
	dir := filepath.Join(s.dir, "tmp")
	entries, err := readDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		switch dead := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil; {
		case dead && !gone(path+s.inner()+"/"+treeDir):
			s.toTrash(path)
		case dead:
			_ = os.Remove(path + s.inner())
			_ = os.Remove(path) // a record, or a directory without a tree
		}
		unix.Close(fd)
	}
	return err
}
