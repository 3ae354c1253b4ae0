package lower

import (
	"container/list"
	"sync"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"golang.org/x/sys/unix"
)

// An FDCache caches open file descriptors by inode, up to a limit. The kernel sends no open requests for this
// FUSE filesystem, so each operation has to find its file itself.
type FDCache struct {
	mu    sync.Mutex
	limit int
	all   map[Key]*list.Element // of *FD
	used  list.List             // most recently used first
}

// A Key says which file a cached descriptor has open: the content of the inode ID in Layer, which may be the
// lower, or the directory Dir of the lower.
type Key struct {
	Layer logfile.Index
	Dir   *Ref
	ID    uint64
}

// DirKey returns the cache key of the lower directory o. It is the path alone: if o is renamed, a new
// directory of its name serves as well.
func DirKey(o *Ref) Key { return Key{Layer: logfile.InLower, Dir: o} }

// An FD is a cached file descriptor. It stays open until its last user has released it and the cache has
// dropped it.
type FD struct {
	key    Key
	Num    int
	users  int
	cached bool
}

// NewFDCache returns a cache of at most that many open descriptors of content files and lower directories.
// Beyond the limit it drops those that were used least recently.
func NewFDCache(most int) *FDCache { return &FDCache{limit: most, all: map[Key]*list.Element{}} }

// Get returns an open descriptor of the file that key names: from the cache or else by calling open, whose
// result it caches. The caller must release it with Put.
func (c *FDCache) Get(key Key, open func() (int, error)) (*FD, error) {
	if d := c.find(key); d != nil {
		return d, nil
	}
	n, err := open()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[key]; e != nil { // another goroutine was faster
		unix.Close(n)
		return c.use(e), nil
	}
	d := &FD{key: key, Num: n, cached: true}
	c.all[key] = c.used.PushFront(d)
	c.use(c.all[key])
	for c.used.Len() > c.limit {
		c.forget(c.used.Back())
	}
	return d, nil
}

// Add caches the open descriptor n for a key that has none. The cache then owns n and closes it.
func (c *FDCache) Add(key Key, n int) {
	d, err := c.Get(key, func() (int, error) { return n, nil })
	if err == nil {
		c.Put(d)
	}
}

func (c *FDCache) find(key Key) *FD {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[key]; e != nil {
		return c.use(e)
	}
	return nil
}

func (c *FDCache) use(e *list.Element) *FD {
	c.used.MoveToFront(e)
	d := e.Value.(*FD) //nolint:errcheck // nothing else is in the list
	d.users++
	return d
}

// Put releases a descriptor that Get returned, and must be called once for each Get. A descriptor that the
// cache has dropped is closed with its last user.
func (c *FDCache) Put(d *FD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.users--
	d.closeUnused()
}

// Drop removes the descriptor of key from the cache, so that the next Get opens the file anew. Present users
// may go on.
func (c *FDCache) Drop(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[key]; e != nil {
		c.forget(e)
	}
}

// DropAll removes all descriptors from the cache. Those without users are closed at once, the others when
// their users release them.
func (c *FDCache) DropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.used.Len() > 0 {
		c.forget(c.used.Back())
	}
}

func (c *FDCache) forget(e *list.Element) {
	d := e.Value.(*FD) //nolint:errcheck // nothing else is in the list
	c.used.Remove(e)
	delete(c.all, d.key)
	d.cached = false
	d.closeUnused()
}

func (d *FD) closeUnused() {
	if d.users == 0 && !d.cached {
		unix.Close(d.Num)
	}
}
