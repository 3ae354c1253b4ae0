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

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/fault"
)

// Each seal puts a layer on a fork. Where the snapshots between layers have been removed nobody needs the states that
// were in between, and Sweep makes one layer of them: [layer.Merge]. It has their places in every
// stack, so that layers above it, and who serves them, go on as they are. Who had opened what was merged has it, and keeps
// it, until he has done.

const (
	// fewest is how many layers are merged at least. Merging links all content of them anew, so
	// that one that holds much is merged again only when there is half as much above it.
	minMerge = 8
	// instead is a file in a merged layer, until all records name that: whose place it takes, a name a line.
	replacesFile = "/instead"
	// superseded is one in a layer that a merged one stands for. Who has just read an older record may be about
	// to open that, so that it stays for the time of grace.
	supersededFile = "/superseded"
	grace          = time.Minute
	// apart is one in the first of some layers that cannot be merged: a name a line.
	unmergeableFile = "/apart"
)

// filed is a record and the path that it was read from.
type recordFile struct {
	path string
	record
}

// records reads those of all snapshots and forks. Those that go meanwhile are left out.
func (b *backend) records() (all []recordFile, err error) {
	for _, dir := range []string{"snapshots", "forks"} {
		list, err := ids[string](filepath.Join(b.dir, dir))
		if err != nil {
			return nil, err
		}
		for _, id := range list {
			path := filepath.Join(b.dir, dir, id)
			r, err := read(path, dir == "forks")
			if notExist(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, recordFile{path, r})
		}
	}
	return all, nil
}

// compact merges each of some chains. Cost: reading the logs of what is merged, and of what is below
// that, and, with the lock held exclusively, all records.
func (b *backend) compact(ctx context.Context, chains []chain) error {
	for _, c := range chains {
		err := b.merge(ctx, &c)
		if errors.Is(err, layer.ErrNotMergeable) || errors.Is(err, layer.ErrDamaged) || notExist(err) { // they stay as they are
			err = os.WriteFile(b.unmergeablePath(&c), []byte(c.text()), 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apartNote is the file that says of which layers it is known that they cannot be merged.
func (b *backend) unmergeablePath(c *chain) string {
	return b.layerPath(c.names()[0]) + unmergeableFile
}

// A chain is layers of a record, from an index up to, but without, another.
type chain struct {
	of       record
	from, to int
}

func (c *chain) names() []string { return c.of.Layers[c.from:c.to] }
func (c *chain) text() string    { return strings.Join(c.names(), "\n") }

// chains are the longest that are worth merging, of layers which all records that have one
// of them have all of, as their own or as their first base's.
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

// worth leaves out the oldest layers of a chain that hold much beside those above, and
// reports whether enough are left.
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

// merge makes one layer of a chain, and has all records name it.
func (b *backend) merge(ctx context.Context, c *chain) error {
	if err := fault.Point(ctx, "merge layers"); err != nil {
		return err
	}
	name := uniqueName("merged-")
	next := b.dir + "/tmp/" + name
	defer b.discard(next) // where it is still there
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
		return nil // something has changed
	}
	if err := fault.Point(ctx, "put the merged layer in its place"); err != nil {
		return err
	}
	if err := os.Rename(next, b.layerPath(name)); err != nil {
		return err
	}
	return b.substitute(ctx, all, name)
}

// mergeInto does so at a path in tmp/, which nobody clears while the lock is held.
func (b *backend) mergeInto(ctx context.Context, c *chain, path string) error {
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+replacesFile, []byte(c.text()), 0o600); err != nil {
		return err
	}
	return layer.Merge(b.optionsOn("", &c.of), c.from, c.to, path) // the tree below is not looked at
}

// substitute has all records name a merged layer that name those whose place it takes, and notes
// that these are needed no more. What is killed meanwhile the next sweep goes on with. The
// caller holds the lock exclusively; the records are changed, too.
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
	for _, l := range old {
		if err := os.WriteFile(b.layerPath(l)+supersededFile, nil, 0o600); err != nil && !notExist(err) {
			return err
		}
	}
	return os.Remove(note)
}

// countMerged has the quota of a record count a merged layer, and no more what that was made of.
func (b *backend) chargeMerged(r *record, name string, old []string) error {
	q, err := b.quota(r)
	if err != nil {
		return err
	}
	defer q.Close()
	for _, l := range old {
		if err := q.SetUsage(b.layerPath(l), layer.Usage{}); err != nil {
			return err
		}
	}
	return b.chargeLayers(r, func(path string) bool { return path == b.layerPath(name) })
}

// finish does what is left of substituting merged layers that records name.
func (b *backend) finishMerges(ctx context.Context, all []recordFile) error {
	entries, err := os.ReadDir(b.dir + "/layers")
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "merged-") || unix.Access(b.layerPath(e.Name())+replacesFile, unix.F_OK) != nil ||
			!slices.ContainsFunc(all, func(r recordFile) bool { return slices.Contains(r.Layers, e.Name()) }) {
			continue
		}
		if err := b.substitute(ctx, all, e.Name()); err != nil {
			return err
		}
	}
	return err
}

// bury moves a layer that nothing names into the trash, unless somebody has it open, and says
// whether it has to wait because somebody may be about to.
func (b *backend) trashLayer(path string) (waits bool) {
	if st, err := os.Stat(path + supersededFile); err == nil && time.Since(st.ModTime()) < grace {
		return true
	}
	_ = layer.Unused(path, func() error { // or the next sweep does
		b.discard(path)
		return nil
	})
	return false
}
