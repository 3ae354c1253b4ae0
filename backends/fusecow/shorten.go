//go:build linux

package fusecow

import (
	"context"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
)

// Each seal adds a layer to a fork, and a mount opens them all. Before a seal, shorten merges the layers of a
// fork that has many. Snapshots that exist still name the old layers. The merged layer has hard links to their
// content, so it takes hardly any space, and later snapshots and forks of them start with it. Unlike
// [backend.compact], shorten needs no snapshot to be removed.

const (
	// maxLayers is the number of layers, of a fork's first base or of its own, at which Seal merges them first.
	// maxLayersInUse replaces it for a fork in use, whose processes may have to wait for Seal.
	maxLayers, maxLayersInUse = 2 * minMerge, 4 * minMerge
	mergedPrefix              = "merged-" // begins the name of each merged layer
	// partsFile is the path, in a layer that shorten has made, of the list of the layers it was merged from,
	// one per line.
	partsFile = "/parts"
)

// shorten merges layers of the fork id if it has many, and makes the record of the fork, both r and its file,
// name the merged ones. Killed at any step, it leaves the fork with the old or the new layers, which have the
// same effect. Layers that cannot be merged stay, and so do those of a fork with a disk limit. The only error
// is that of ctx. The caller holds the lock of the fork and, shared, the backend's. Cost: in proportion to
// the files changed since the last merge, and a sync of the filesystem.
func (b *backend) shorten(ctx context.Context, id snapshot.ForkID, r *record, use snapshot.Use) error {
	most := maxLayers
	if use == snapshot.InUse {
		most = maxLayersInUse
	}
	for _, c := range []chain{{from: r.Own, to: len(r.Layers) - 1}, {from: 0, to: r.Own}} {
		if c.from >= r.Own && r.Limit != nil {
			continue // the limit counts what its snapshots have, and a merged layer lacks that
		}
		if c.of = *r; c.to-c.from < most || !b.trimChain(&c) || b.failedBefore(&c) {
			continue
		}
		// After an error, as on a full disk, the fork has its old layers, and the next seal tries again.
		if err := b.noteUnmergeable(&c, b.mergeOwn(ctx, id, r, &c)); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// failedBefore reports whether shorten has found that the layers of the chain cannot be merged, and the fork
// has got few further ones since.
func (b *backend) failedBefore(c *chain) bool {
	text, err := os.ReadFile(b.unmergeablePath(c))
	known := string(text)
	return err == nil && strings.HasPrefix(c.text(), known) && c.to-c.from < strings.Count(known, "\n")+1+minMerge
}

// mergeOwn merges the layers of a chain of the fork id into one layer, and makes the record r of the fork and
// its file name that layer. If it fails before, the fork keeps its layers.
func (b *backend) mergeOwn(ctx context.Context, id snapshot.ForkID, r *record, c *chain) error {
	if err := fault.Point(ctx, "merge the fork's layers"); err != nil {
		return err
	}
	name := uniqueName(mergedPrefix)
	unused := b.dir + "/tmp/" + name
	defer func() { b.discard(unused) }()
	if err := b.mergeChain(c, unused, partsFile); err != nil {
		return err
	}
	if err := fault.Point(ctx, "put the fork's merged layer in its place"); err != nil {
		return err
	}
	if err := os.Rename(unused, b.layerPath(name)); err != nil {
		return err
	}
	unused = b.layerPath(name)
	err := b.markSuperseded(c.names())
	if err == nil {
		err = fault.Point(ctx, "name the fork's merged layer")
	}
	next := r.merged(c.from, c.to, name)
	if err == nil {
		err = b.replace(b.forkPath(id), &next)
	}
	if err != nil {
		return err
	}
	*r, unused = next, b.dir+"/tmp/"+name // which is gone
	return nil
}

// commonLayers returns how many of the oldest layers of x and of y together have the same effect: they are the
// same layers, or shorten has merged those of one record into a layer of the other.
func (b *backend) commonLayers(x, y *record) (inX, inY int) {
	for inX < len(x.Layers) && inY < len(y.Layers) {
		if x.Layers[inX] == y.Layers[inY] {
			inX, inY = inX+1, inY+1
		} else if n := b.partsAt(y.Layers[inY], x.Layers[inX:]); n > 0 {
			inX, inY = inX+n, inY+1
		} else if n := b.partsAt(x.Layers[inX], y.Layers[inY:]); n > 0 {
			inX, inY = inX+1, inY+n
		} else {
			break
		}
	}
	return inX, inY
}

// partsAt returns how many of the first of layers are those that shorten merged into the layer merged, or 0 if
// not all of them are there. A part may itself have been merged from others.
func (b *backend) partsAt(merged string, layers []string) (n int) {
	if !strings.HasPrefix(merged, mergedPrefix) {
		return 0
	}
	text, err := os.ReadFile(b.layerPath(merged) + partsFile)
	if err != nil {
		return 0
	}
	for part := range strings.SplitSeq(string(text), "\n") {
		if n < len(layers) && layers[n] == part {
			n++
			continue
		}
		more := b.partsAt(part, layers[n:])
		if more == 0 {
			return 0
		}
		n += more
	}
	return n
}
