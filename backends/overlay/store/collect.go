//go:build linux

package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// LiveLayers holds the layers that are in use because the record of a snapshot or fork names them; all others
// can be removed. [Store.Collect] returns it.
type LiveLayers struct {
	Used   map[string]bool // all layers
	Upper  map[string]bool // the upper layers of forks
	Chains [][]string      // the layers of each snapshot
	// merged holds the merged layer that replaces a layer, or "" for none. Collect fills it in for each layer
	// in use.
	merged map[string]string
}

// recordCache caches the records of snapshots and forks by directory and id. Collect reads all records before
// it takes the lock, and under the lock only those that changed meanwhile.
type recordCache map[string]cachedRecord

type cachedRecord struct {
	ino   uint64
	ctime vfs.Timestamp
	// settled is set if a change after the reading of the record has another ctime.
	settled bool
	Record
}

// Collect moves layers that no record of a snapshot or fork names into the trash, or stores empty ones for
// reuse if free returns true. If any record is unreadable it moves none, because that record may name any
// layer, and does the rest of its work. It returns the layers in use. Errors: ErrCorrupt for an unreadable record.
func (s *Store) Collect(ctx context.Context, free func(c *LiveLayers, layer string) (bool, error)) (*LiveLayers, error) {
	k := recordCache{}
	_, _ = s.count(k, false) // without the lock, so that under it only new records are read, which reports errors
	unlock, err := s.Lock(ctx, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := s.count(k, true)
	if err != nil {
		return nil, errors.Join(err, s.clearTmp(), s.clearOld())
	}
	for _, layer := range c.Frozen() { // a merged layer lives as long as the layers that it replaces
		for merged := s.cachedMergedInto(c, layer); merged != "" && !c.Used[merged]; merged = s.cachedMergedInto(c, merged) {
			c.Used[merged] = true
		}
	}
	if err := fault.Point(ctx, "move dead layers into the trash"); err != nil {
		return nil, err
	}
	return c, errors.Join(s.clearLayers(c, free), s.clearTmp(), s.clearOld())
}

// count reads the records of all snapshots and forks, except those that the cache k has, and returns the
// layers that any record names. The caller says whether it has the lock exclusively.
func (s *Store) count(k recordCache, locked bool) (*LiveLayers, error) {
	c := &LiveLayers{Used: map[string]bool{}, Upper: map[string]bool{}, merged: map[string]string{}}
	for _, dir := range []string{"snapshots", "forks"} {
		if err := s.eachRecord(dir, k, locked, func(_ string, r *Record) { c.add(r) }); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// eachRecord calls do with the id and the content of each record in the directory dir, which it reads through
// the cache k. locked is set if the caller holds the lock. Without the exclusive lock, eachRecord may skip a record that
// another process is writing.
func (s *Store) eachRecord(dir string, k recordCache, locked bool, do func(id string, r *Record)) error {
	ids, err := IDs[string](s, dir)
	if err != nil || len(ids) == 0 {
		return err
	}
	open, err := vfs.OpenDir(unix.AT_FDCWD, filepath.Join(s.Dir, dir))
	if err != nil {
		return err
	}
	defer open.Close()
	fd := int(open.Fd())
	found, failures := make([]cachedRecord, len(ids)), make([]error, len(ids))
	vfs.Each(len(ids), func(i int) { found[i], failures[i] = k.read(fd, dir, ids[i], locked) })
	for i, id := range ids {
		err := failures[i]
		if errors.Is(err, errIncomplete) || errors.Is(err, fs.ErrNotExist) {
			continue // a maker that has named layers holds the lock, so this one is dead
		}
		if err != nil {
			return unreadable(filepath.Join(s.Dir, dir, id), err)
		}
		if found[i].settled {
			k[dir+"/"+id] = found[i]
		}
		do(id, &found[i].Record)
	}
	return nil
}

// unreadable returns the error for a record at path that cannot be read because of cause. Without it nobody knows which
// layers are in use.
func unreadable(path string, cause error) error {
	if kind := errs.KindOfFile(cause); !errors.Is(kind, errs.ErrDenied) && !errors.Is(kind, errs.ErrCorrupt) {
		return cause
	}
	if p := (*fs.PathError)(nil); errors.As(cause, &p) {
		cause = p.Err
	}
	return Refuse(errs.ErrCorrupt, path, "unused layers stay, because this record may name any of them: "+cause.Error())
}

// Frozen lists the layers in use that no fork writes to: all but the upper layers.
func (c *LiveLayers) Frozen() (list []string) {
	for layer := range c.Used {
		if !c.Upper[layer] {
			list = append(list, layer)
		}
	}
	return list
}

func (c *LiveLayers) add(r *Record) {
	for _, layer := range r.Layers {
		c.Used[layer] = true
	}
	if r.Fork {
		c.Used[r.Upper], c.Upper[r.Upper] = true, true
	} else {
		c.Chains = append(c.Chains, r.Layers)
	}
}

// read returns the record id in the directory dir, which fd has open, from the cache, unless its file has
// another ctime or inode by now. Any number of threads may call it at once. Without the lock it may return a
// record whose file was removed and reused meanwhile; a read with the lock then finds another ctime.
func (k recordCache) read(fd int, dir, id string, locked bool) (cachedRecord, error) {
	if old, ok := k[dir+"/"+id]; ok {
		st, err := vfs.Lstat(fd, id)
		if err != nil || old.ino == st.Ino && old.ctime == st.CTime {
			return old, err
		}
	}
	now := time.Now()
	if !locked {
		if text, st, err := readOnce(fd, id); err == nil {
			if r, err := parseRecord(text); err == nil {
				return cachedRecord{st.Ino, st.CTime, st.Settled(now), r}, nil
			}
		}
	}
	r, st, err := readRecord(fd, id)
	return cachedRecord{st.Ino, st.CTime, st.Settled(now), r}, err
}

// cachedMergedInto returns what [Store.mergedInto] does, and reads it once for each layer of c.
func (s *Store) cachedMergedInto(c *LiveLayers, layer string) string {
	merged, known := c.merged[layer]
	if !known {
		merged = s.mergedInto(layer)
		c.merged[layer] = merged
	}
	return merged
}

// ShortenCached returns the list chain of layers, topmost first, as [Store.Shorten] shortens it, and whether it
// then still is so long that the caller must merge it. It reads each layer of c once. After a merge the caller
// calls ForgetMerged.
func (s *Store) ShortenCached(c *LiveLayers, chain []string) (short []string, mustMerge bool) {
	mergeAt, _ := s.ChainLimits()
	short = shorten(chain, mergeAt, func(layer string) string { return s.cachedMergedInto(c, layer) })
	return short, len(short) > mergeAt
}

// ForgetMerged makes [Store.ShortenCached] read again which layer replaces layer, because this or another process
// has merged it.
func (c *LiveLayers) ForgetMerged(layer string) { delete(c.merged, layer) }

// mergedInto returns the merged layer that replaces this layer and all layers below it, or "" if Sweep has
// merged none.
func (s *Store) mergedInto(layer string) string {
	to := strings.TrimPrefix(s.Note(layer, "merged"), "../")
	if layerName(to) != nil {
		return ""
	}
	return to
}

// Note returns the target of the symbolic link called name in the directory of a layer, which is a note about
// the layer, or "" if there is none.
func (s *Store) Note(layer, name string) string {
	var target [256]byte // longer than a layer's name, and than a boot's id
	n, err := unix.Readlink(s.LayerPath(layer)+"/"+name, target[:])
	if err != nil || n == len(target) {
		return ""
	}
	return string(target[:n])
}

func (s *Store) clearLayers(c *LiveLayers, free func(c *LiveLayers, layer string) (bool, error)) error {
	entries, err := readDir(filepath.Join(s.Dir, "layers"))
	for _, e := range entries {
		layer, again := e.Name(), false
		if !c.Used[layer] {
			var e error
			again, e = free(c, layer)
			err = errors.Join(err, e)
		}
		switch {
		case again && s.KeepSpare(layer):
		case !c.Used[layer] && !IsGone(s.TreePath(layer)):
			s.ToTrash(s.LayerPath(layer))
		case !c.Used[layer]:
			_ = os.Remove(s.LayerPath(layer) + s.Inner())
			_ = os.Remove(s.LayerPath(layer)) // incomplete; if it is not empty, it is not ours
		case !c.Upper[layer] && !IsGone(s.WorkPath(layer)):
			s.ToTrash(s.WorkPath(layer)) // the process was killed after the seal
		}
	}
	return err
}

// readDir lists the directory dir of the store. It returns nothing if the directory does not exist, because
// no process has made the store's directories yet.
func readDir(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return entries, err
}

// clearTmp moves into the trash the entries of tmp/, the directory for layers that are being copied, whose
// writers no longer live.
func (s *Store) clearTmp() error {
	dir := filepath.Join(s.Dir, "tmp")
	entries, err := readDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		switch dead := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil; {
		case dead && !IsGone(path+s.Inner()+"/"+TreeDir):
			s.ToTrash(path)
		case dead:
			_ = os.Remove(path + s.Inner())
			_ = os.Remove(path) // a record, or a directory without a tree
		}
		unix.Close(fd)
	}
	return err
}
