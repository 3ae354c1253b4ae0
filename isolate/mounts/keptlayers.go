//go:build linux

package mounts

import (
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// keptLayers are the layers that hide entries of the host's trees in the containers that this process has
// started. A process that starts one container after another, or several at once, fills a layer once: the
// containers have mounts of the same tmpfs, which none of them can change, since it is a lower layer.
var keptLayers layerCache

// A layerCache holds one filled layer for each of the newest trees. It is safe for concurrent use.
type layerCache struct {
	mu     sync.Mutex
	layers map[string]*keptLayer // by the target of the tree's mount
}

// mostKept is the number of trees of which a [layerCache] holds a layer. One more makes it forget all.
const mostKept = 8

// A keptLayer is a layer with its content, by which a later container of the same content finds it.
type keptLayer struct {
	layer   *os.File // detached, with the ids of the host
	parents []parent
	hidden  []Hidden
	opaque  bool
}

// get returns a new detached mount of the layer for tree, or nil if there is none of just this content. The
// caller closes it.
func (c *layerCache) get(tree string, k keptLayer) *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.layers[tree]
	if old == nil || old.opaque != k.opaque || !slices.EqualFunc(old.parents, k.parents, sameParent) || !slices.EqualFunc(old.hidden, k.hidden, sameHidden) {
		return nil
	}
	m, err := mount.CloneTree(vfs.FDPath(old.layer))
	if err != nil {
		return nil
	}
	return m
}

// put stores a layer for tree, which the cache closes.
func (c *layerCache) put(tree string, k keptLayer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.layers[tree]; old != nil {
		CloseInBackground(old.layer)
	} else if len(c.layers) >= mostKept || c.layers == nil {
		for _, old := range c.layers {
			CloseInBackground(old.layer)
		}
		c.layers = map[string]*keptLayer{}
	}
	c.layers[tree] = &k
}

// sameParent reports whether copies of the directories a and b in a layer are alike.
func sameParent(a, b parent) bool {
	return a.path == b.path && a.st.Mode == b.st.Mode && a.st.UID == b.st.UID && a.st.GID == b.st.GID &&
		a.st.ATime == b.st.ATime && a.st.MTime == b.st.MTime && maps.Equal(a.xattrs, b.xattrs)
}

func sameHidden(a, b Hidden) bool {
	return a.Dir == b.Dir && a.All == b.All && slices.Equal(a.Absent, b.Absent) && slices.Equal(a.StandIns, b.StandIns)
}
