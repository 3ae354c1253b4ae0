package layer

import (
	"container/list"
	"sync"

	"golang.org/x/sys/unix"
)

// fds keeps descriptors of files that are asked for by inode, because the
// kernel opens nothing here: it is told once that there is no need to.
type fds struct {
	mu   sync.Mutex
	most int
	all  map[fdKey]*list.Element // of *fd
	used list.List               // the latest used first
}

type fdKey struct {
	place place
	dir   *origin // of a directory of the tree below, which has this alone
	id    uint64
}

// dirKey is that of a directory of the tree below: of one that has its name, whichever that is.
func dirKey(o *origin) fdKey { return fdKey{place: below, dir: o} }

// An fd is a descriptor that stays open until its last user lets go of it and
// it is not kept any more.
type fd struct {
	key   fdKey
	n     int
	users int
	kept  bool
}

func newFDs(most int) *fds { return &fds{most: most, all: map[fdKey]*list.Element{}} }

// get answers with the descriptor for key, opened by open where there is none.
// The caller calls put with it afterwards.
func (c *fds) get(key fdKey, open func() (int, error)) (*fd, error) {
	if d := c.find(key); d != nil {
		return d, nil
	}
	n, err := open()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[key]; e != nil { // somebody was faster
		unix.Close(n)
		return c.use(e), nil
	}
	d := &fd{key: key, n: n, kept: true}
	c.all[key] = c.used.PushFront(d)
	c.use(c.all[key])
	for c.used.Len() > c.most {
		c.forget(c.used.Back())
	}
	return d, nil
}

// add keeps a descriptor that is open already, of a file that has none here.
func (c *fds) add(key fdKey, n int) {
	d, err := c.get(key, func() (int, error) { return n, nil })
	if err == nil {
		c.put(d)
	}
}

func (c *fds) find(key fdKey) *fd {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[key]; e != nil {
		return c.use(e)
	}
	return nil
}

func (c *fds) use(e *list.Element) *fd {
	c.used.MoveToFront(e)
	d := e.Value.(*fd) //nolint:errcheck // nothing else is in the list
	d.users++
	return d
}

func (c *fds) put(d *fd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.users--
	d.closeUnused()
}

// drop forgets the descriptor of a file that goes.
func (c *fds) drop(key fdKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[key]; e != nil {
		c.forget(e)
	}
}

// dropAll forgets all of them.
func (c *fds) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.used.Len() > 0 {
		c.forget(c.used.Back())
	}
}

func (c *fds) forget(e *list.Element) {
	d := e.Value.(*fd) //nolint:errcheck // nothing else is in the list
	c.used.Remove(e)
	delete(c.all, d.key)
	d.kept = false
	d.closeUnused()
}

func (d *fd) closeUnused() {
	if d.users == 0 && !d.kept {
		unix.Close(d.n)
	}
}
