//go:build linux

package mounts

import (
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A LayerCache holds layers that hide entries of trees, for a process that starts one container after another: a
// container gets a mount of its own of an existing layer that hides exactly the same. Nobody writes to a layer. It is
// safe for concurrent use, and a nil LayerCache holds none.
type LayerCache struct {
	mu     sync.Mutex
	layers []cachedLayer // the newest is the last
}

// A cachedLayer is a layer with all that its content was made of.
type cachedLayer struct {
	tree    string
	opaque  bool
	parents []parent
	hidden  []Hidden
	layer   *os.File // detached, without mapped ids
}

// maxLayers is how many layers a [LayerCache] holds; a container needs one for each tree with hidden entries.
const maxLayers = 8

// get returns a layer as fillLayer does. With shared, its content is that of other containers too.
func (c *LayerCache) get(tree string, hidden []Hidden, opaque bool) (layer *os.File, parents []parent, shared bool, err error) {
	parents, here := parentsOf(tree, hidden)
	if c != nil {
		if layer := c.find(tree, here, parents, opaque); layer != nil {
			return layer, parents, true, nil
		}
	}
	if layer, err = fillLayer(parents, here, opaque); err != nil || c == nil {
		return layer, parents, false, err
	}
	own, err := mount.CloneDetached(layer)
	if err != nil { // before Linux 6.15
		return layer, parents, false, nil //nolint:nilerr // the layer serves this container alone
	}
	c.add(cachedLayer{tree, opaque, parents, here, layer})
	return own, parents, true, nil
}

// find returns a new mount of the layer that was made of exactly this, or nil.
func (c *LayerCache) find(tree string, hidden []Hidden, parents []parent, opaque bool) *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.layers {
		if l.tree != tree || l.opaque != opaque || !slices.EqualFunc(l.parents, parents, parent.equal) || !slices.EqualFunc(l.hidden, hidden, Hidden.equal) {
			continue
		}
		if own, err := mount.CloneDetached(l.layer); err == nil {
			return own
		}
	}
	return nil
}

// add adds a layer, and removes the oldest if there are too many.
func (c *LayerCache) add(l cachedLayer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.layers = append(c.layers, l); len(c.layers) > maxLayers {
		c.layers[0].layer.Close()
		c.layers = slices.Delete(c.layers, 0, 1)
	}
}

// equal reports whether copies of the directories p and o in a layer are the same.
func (p parent) equal(o parent) bool {
	same := func(a, b vfs.Stat) bool {
		return a.UID == b.UID && a.GID == b.GID && a.Mode == b.Mode && a.ATime == b.ATime && a.MTime == b.MTime
	}
	if p.path != o.path || !same(p.st, o.st) || len(p.xattrs) != len(o.xattrs) {
		return false
	}
	for name, value := range p.xattrs {
		if other, ok := o.xattrs[name]; !ok || other != value {
			return false
		}
	}
	return true
}

func (h Hidden) equal(o Hidden) bool {
	return h.Dir == o.Dir && slices.Equal(h.Absent, o.Absent) && slices.Equal(h.StandIns, o.StandIns)
}
