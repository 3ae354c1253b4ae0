//go:build linux

package fusecow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Each seal adds a layer to a fork. Once the snapshots between some layers are removed, nobody needs the states
// in between, and Sweep merges these layers with [logfile.Merge]. The merged layer occupies the same indexes, so
// layers above it and their servers are not affected. A process that has the old layers open may use them until
// it closes them.

const (
	// minMerge is the smallest number of layers that are merged into one. Merging links all their content
	// anew, so a large layer is merged again only if the layers above it hold half as much.
	minMerge = 8
	// replacesFile is the path, in a merged layer, of the list of the layers that it replaces, one per line.
	// The file exists until the records of all snapshots and forks name the merged layer.
	replacesFile = "/instead"
	// supersededFile is a file in a layer that says that a merged one has replaced it. A process that has
	// just read an older record may be about to open the layer, so a sweep removes it only after a grace
	// period.
	supersededFile = "/superseded"
	grace          = time.Minute
	// unmergeableFile is a file in the lowest of some layers that cannot be merged into one. It lists these
	// layers, one per line, so that no sweep tries again.
	unmergeableFile = "/apart"
)

// A recordFile is the record of a snapshot or a fork, which says of which layers it is made, with the path of
// its file. The search for layers to merge uses it.
type recordFile struct {
	path string
	record
}

// records reads the records (the files that say of which layers a snapshot or fork is made) of all snapshots
// and forks. It skips any that is removed meanwhile.
func (b *backend) records() (all []recordFile, err error) {
	for _, dir := range []string{"snapshots", "forks"} {
		list, err := ids[string](filepath.Join(b.dir, dir))
		if err != nil {
			return nil, err
		}
		found, failures := make([]recordFile, len(list)), make([]error, len(list))
		vfs.Each(len(list), func(i int) {
			found[i].path = filepath.Join(b.dir, dir, list[i])
			found[i].record, failures[i] = read(found[i].path, dir == "forks")
		})
		for i, r := range found {
			if notExist(failures[i]) {
				continue
			}
			if failures[i] != nil {
				return nil, failures[i]
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// compact merges each of the chains of layers into one layer, so that mounts open fewer. It notes a chain
// that cannot be merged in unmergeableFile. Cost: reading the logs of the merged layers and of those below
// them, and all records while it holds the lock exclusively.
func (b *backend) compact(ctx context.Context, chains []chain) error {
	for _, c := range chains {
		if err := b.noteUnmergeable(&c, b.merge(ctx, &c)); err != nil {
			return err
		}
	}
	return nil
}

// noteUnmergeable notes that the chain c cannot be merged, if err, the result of merging it, says so: the chain
// then stays as it is. It returns other errors unchanged.
func (b *backend) noteUnmergeable(c *chain, err error) error {
	if errors.Is(err, logfile.ErrNotMergeable) || errors.Is(err, logfile.ErrDamaged) || notExist(err) {
		return os.WriteFile(b.unmergeablePath(c), []byte(c.text()), 0o600)
	}
	return err
}

// unmergeablePath returns the path of the file [unmergeableFile] for the chain c. If it exists, an earlier
// sweep has found that the layers of c cannot be merged.
func (b *backend) unmergeablePath(c *chain) string {
	return b.layerPath(c.names()[0]) + unmergeableFile
}

// A chain is a range of the layers of one snapshot or fork, of.Layers[from:to], that may be merged into one
// layer.
type chain struct {
	of       record
	from, to int
}

func (c *chain) names() []string { return c.of.Layers[c.from:c.to] }
func (c *chain) text() string    { return strings.Join(c.names(), "\n") }

// chains returns the longest ranges of layers that are worth merging. All snapshots and forks that have one
// layer of such a chain have all of them, either all as own layers or all as layers of the first base.
func (b *backend) chains(all []recordFile) (list []chain) {
	next, ends := map[string]string{}, map[string]bool{}
	for _, r := range all {
		for i, l := range r.Layers {
			above := ""
			if i+1 < len(r.Layers) {
				above = r.Layers[i+1]
			}
			known, ok := next[l]
			ends[l] = ends[l] || above == "" || ok && known != above || r.Base != "" && (i+1 == r.Own || i+2 == len(r.Layers))
			next[l] = above
		}
	}
	seen := map[string]bool{}
	for _, r := range all {
		for from := 0; from < len(r.Layers); {
			to := from + 1
			for !ends[r.Layers[to-1]] {
				to++
			}
			if first := r.Layers[from]; !seen[first] {
				seen[first] = true
				if c := (chain{r.record, from, to}); b.trimChain(&c) {
					list = append(list, c)
				}
			}
			from = to
		}
	}
	return list
}

// trimChain drops from a chain of layers the oldest ones that hold much more than those above, since merging
// these is not worth it. It reports whether to merge the others: they are enough, and not known to be
// unmergeable.
func (b *backend) trimChain(c *chain) bool {
	sum, from := int64(0), c.to
	for from > c.from {
		st, err := os.Stat(b.layerPath(c.of.Layers[from-1]) + "/log")
		if err != nil || c.to-from >= minMerge && st.Size() > 2*sum {
			break
		}
		sum += st.Size()
		from--
	}
	if c.from = from; c.to-c.from < minMerge {
		return false
	}
	known, err := os.ReadFile(b.unmergeablePath(c))
	return err != nil || string(known) != c.text()
}

// merge merges a chain of layers into one layer, and makes all records of snapshots and forks that named the
// chain name that layer.
func (b *backend) merge(ctx context.Context, c *chain) error {
	if err := fault.Point(ctx, "merge layers"); err != nil {
		return err
	}
	name := uniqueName(mergedPrefix)
	next := b.dir + "/tmp/" + name
	defer b.discard(next) // if it still exists
	if err := b.mergeInto(ctx, c, next); err != nil {
		return err
	}
	unlock, err := b.lock(ctx, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := b.records()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(b.chains(all), func(now chain) bool { return slices.Equal(now.names(), c.names()) }) {
		return nil // a chain has changed meanwhile
	}
	if err := fault.Point(ctx, "put the merged layer in its place"); err != nil {
		return err
	}
	if err := os.Rename(next, b.layerPath(name)); err != nil {
		return err
	}
	return b.substitute(ctx, all, name)
}

// mergeInto merges the layers of a chain into a new layer at path, in tmp/. It holds the backend's lock,
// shared, so that no sweep clears tmp/.
func (b *backend) mergeInto(ctx context.Context, c *chain, path string) error {
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	return b.mergeChain(c, path, replacesFile)
}

// mergeChain merges the layers of a chain into a new layer at path, and writes their names to the file list
// in that layer, by which a later process knows the replaced layers. The caller holds the backend's lock,
// shared.
func (b *backend) mergeChain(c *chain, path, list string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+list, []byte(c.text()), 0o600); err != nil {
		return err
	}
	return logfile.Merge(logfile.Stack{Layers: b.layerPaths(&c.of), Indexes: c.of.Indexes}, c.from, c.to, path)
}

// substitute makes all records name the merged layer of this name in place of the layers that it replaces,
// and marks these as superseded. If it is interrupted, the next sweep completes it. The caller holds the lock
// exclusively; substitute also updates the records in all.
func (b *backend) substitute(ctx context.Context, all []recordFile, name string) error {
	note := b.layerPath(name) + replacesFile
	text, err := os.ReadFile(note)
	if err != nil {
		return err
	}
	old := strings.Split(string(text), "\n")
	for i := range all {
		r := &all[i]
		from := slices.Index(r.Layers, old[0])
		if to := from + len(old); from >= 0 && to <= len(r.Layers) && slices.Equal(r.Layers[from:to], old) {
			if err := fault.Point(ctx, "name the merged layer"); err != nil {
				return err
			}
			next := r.merged(from, to, name)
			if err := b.replace(r.path, &next); err != nil && !notExist(err) {
				return err
			}
			r.record = next
		}
		if at := slices.Index(r.Layers, name); at >= r.Own && r.Limit != nil {
			if err := b.chargeMerged(&r.record, name, old); err != nil {
				return err
			}
		}
	}
	if err := b.markSuperseded(old); err != nil {
		return err
	}
	return os.Remove(note)
}

// markSuperseded marks layers that a merged layer has replaced in some records. A process may have read an
// older record and not opened the layers yet, so a sweep keeps them for a grace period.
func (b *backend) markSuperseded(layers []string) error {
	for _, l := range layers {
		if err := os.WriteFile(b.layerPath(l)+supersededFile, nil, 0o600); err != nil && !notExist(err) {
			return err
		}
	}
	return nil
}

// chargeMerged makes the merged layer name count for the disk limit in the record r, in place of the layers
// old that it replaces.
func (b *backend) chargeMerged(r *record, name string, old []string) error {
	q, err := b.quota(r)
	if err != nil {
		return err
	}
	defer q.Close()
	for _, l := range old {
		if err := q.SetUsage(b.layerPath(l), quota.Usage{}); err != nil {
			return err
		}
	}
	return b.chargeLayers(r, func(path string) bool { return path == b.layerPath(name) })
}

// finishMerges completes merges of layers during which a process was killed: some records in all already name
// the merged layer, others still the layers that it replaces.
func (b *backend) finishMerges(ctx context.Context, all []recordFile) error {
	entries, err := os.ReadDir(b.dir + "/layers")
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), mergedPrefix) || unix.Access(b.layerPath(e.Name())+replacesFile, unix.F_OK) != nil ||
			!slices.ContainsFunc(all, func(r recordFile) bool { return slices.Contains(r.Layers, e.Name()) }) {
			continue
		}
		if err := b.substitute(ctx, all, e.Name()); err != nil {
			return err
		}
	}
	return err
}

// trashLayer moves the layer at path, which no record names, into the trash, unless a process has it open.
// waits means that it must stay for now, because a process may be about to open it.
func (b *backend) trashLayer(path string) (waits bool) {
	if st, err := os.Stat(path + supersededFile); err == nil && time.Since(st.ModTime()) < grace {
		return true
	}
	_ = logfile.WithExclusive(path, func() error { // after an error the next sweep does it
		b.discard(path)
		return nil
	})
	return false
}
