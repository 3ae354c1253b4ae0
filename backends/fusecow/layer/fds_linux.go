package layer

import (
	"container/list"
	"sync"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"golang.org/x/sys/unix"
)

// An fdCache caches open descriptors by inode. The kernel sends no open requests for this filesystem, so each
// operation has to find its file itself.
type fdCache struct {
	mu    sync.Mutex
	limit int
	all   map[fdKey]*list.Element // of *fd
	used  list.List               // most recently used first
}

type fdKey struct {
	layer logfile.Index
	dir   *lowerRef // set for a lower directory only
	id    uint64
}

// dirKey is the key of a lower directory, by name: any directory of that name will do.
func dirKey(o *lowerRef) fdKey { return fdKey{layer: logfile.InLower, dir: o} }

// An fd is a descriptor that stays open until its last user has released it and the cache has dropped it.
type fd struct {
	key    fdKey
	n      int
	users  int
	cached bool
}

func newFDs(most int) *fdCache { return &fdCache{limit: most, all: map[fdKey]*list.Element{}} }

// get returns the descriptor for key, and calls open if none is cached. The caller must pass it to put.
func (c *fdCache) get(key fdKey, open func() (int, error)) (*fd, error) {
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
	d := &fd{key: key, n: n, cached: true}
	c.all[key] = c.used.PushFront(d)
	c.use(c.all[key])
	for c.used.Len() > c.limit {
		c.forget(c.used.Back())
	}
	return d, nil
}

// add caches an open descriptor for a key that has none.
func (c *fdCache) add(key fdKey, n int) {
	d, err := c.get(key, func() (int, error) { return n, nil })
	if err == nil {
		c.put(d)
	}
}

func (c *fdCache) find(key fdKey) *fd {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[key]; e != nil {
		return c.use(e)
	}
	return nil
}

func (c *fdCache) use(e *list.Element) *fd {
	c.used.MoveToFront(e)
	d := e.Value.(*fd) //nolint:errcheck // nothing else is in the list
	d.users++
	return d
}

func (c *fdCache) put(d *fd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.users--
	d.closeUnused()
}

// drop removes the descriptor of key from the cache.
func (c *fdCache) drop(key fdKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[key]; e != nil {
		c.forget(e)
	}
}

// dropAll empties the cache.
func (c *fdCache) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.used.Len() > 0 {
		c.forget(c.used.Back())
	}
}

func (c *fdCache) forget(e *list.Element) {
	d := e.Value.(*fd) //nolint:errcheck // nothing else is in the list
	c.used.Remove(e)
	delete(c.all, d.key)
	d.cached = false
	d.closeUnused()
}

func (d *fd) closeUnused() {
	if d.users == 0 && !d.cached {
		unix.Close(d.n)
	}
}
