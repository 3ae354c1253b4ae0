package mount

import (
	"container/list"
	"math"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
)

// A passage has the kernel read the files of a tree that nobody writes to from where their
// content lies: no request, and no second copy in memory (FOPEN_PASSTHROUGH, Linux 6.9; it
// takes root of the first user namespace). In exchange each open is a request. What was closed stays
// registered for a while, since programs open the same files again and again: that is half
// of what an open costs.
type passthrough struct {
	f        *layer.FS
	server   *fuse.Server
	mu       sync.Mutex
	backings map[uint64]*backing
	idle     list.List // of *passing that nobody has open, the latest used first
	maxIdle  int       // of these
	round    int       // counts rests, while timer is set
	timer    *time.Timer
}

// A passing is a file that is open. All opens of it are by one backing id, or, where there
// is none, by pages of its own: the kernel takes no mixture.
type backing struct {
	inode   uint64
	content *layer.Content // nil: there is no id
	id      int32
	users   int
	// at and round are, of an idle one, where it is in the list, and since when.
	element *list.Element
	round   int
}

const (
	// rest is how long a file stays registered at least that nobody has open, and twice that the most: a file
	// that is removed below takes up its space so long.
	idleTime = 2 * time.Second
	// mostIdle is how many do.
	maxIdle = 4096
)

func newPassthrough(f *layer.FS) *passthrough {
	p := &passthrough{f: f, backings: map[uint64]*backing{}, maxIdle: maxIdle}
	var most unix.Rlimit // of descriptors, of which each takes one
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &most) == nil {
		p.maxIdle = int(min(maxIdle, most.Cur/4, math.MaxInt32))
	}
	return p
}

// through opens a node. 0: it has to be read by requests.
func (p *passthrough) open(node uint64) (id int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.backings[node]
	if o != nil && o.users == 0 && !o.content.Current(node) {
		p.drop(o)
		o = nil
	}
	if o == nil {
		o = p.register(node)
		p.backings[node] = o
	}
	if o.element != nil {
		p.idle.Remove(o.element)
		o.element = nil
	}
	o.users++
	return o.id
}

func (p *passthrough) register(node uint64) *backing {
	o := &backing{inode: node}
	c, err := p.f.Content(node)
	if err != nil {
		return o
	}
	id, errno := p.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(c.FD)})
	if errno != 0 { // its filesystem may be stacked on another
		c.Close()
		return o
	}
	o.content, o.id = c, id
	return o
}

func (p *passthrough) close(node uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.backings[node]
	if o == nil {
		return
	}
	if o.users--; o.users > 0 {
		return
	}
	if o.content == nil {
		delete(p.backings, node)
		return
	}
	o.element, o.round = p.idle.PushFront(o), p.round
	if p.idle.Len() > p.maxIdle {
		p.drop(p.oldest())
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(idleTime, p.expireIdle)
	}
}

func (p *passthrough) oldest() *backing {
	return p.idle.Back().Value.(*backing) //nolint:errcheck,forcetypeassert // nothing else is in the list
}

// drop forgets an idle one. Holds mu.
func (p *passthrough) drop(o *backing) {
	p.idle.Remove(o.element)
	delete(p.backings, o.inode)
	_ = p.server.UnregisterBackingFd(o.id) // it is there
	o.content.Close()
}

// tidy forgets what has been idle for one rest, and comes again while anything is.
func (p *passthrough) expireIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.idle.Len() > 0 && p.oldest().round < p.round {
		p.drop(p.oldest())
	}
	p.round++
	if p.timer = nil; p.idle.Len() > 0 {
		p.timer = time.AfterFunc(idleTime, p.expireIdle)
	}
}

// end forgets all that is idle, when nobody has anything open any more.
func (p *passthrough) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	for p.idle.Len() > 0 {
		p.drop(p.oldest())
	}
}
