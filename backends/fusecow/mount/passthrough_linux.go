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

// A passthrough lets the kernel read files of a read-only tree directly from their content files: without
// requests, and without a second copy in the page cache (FOPEN_PASSTHROUGH, Linux 6.9, for root of the first
// user namespace). In exchange each open is a request. A closed file stays registered for a while, because
// programs open the same files again and again, and registering is half the cost of an open.
type passthrough struct {
	f        *layer.FS
	server   *fuse.Server
	mu       sync.Mutex
	backings map[uint64]*backing
	idle     list.List // of *backing without users, most recently used first
	maxIdle  int       // bounds idle
	round    int       // counts the idle times while timer is set
	timer    *time.Timer
}

// A backing is an open file of the layer or the lower that the kernel reads directly for one inode of the
// mount. All opens of that inode use one backing id, or all use the page cache: the kernel allows no mixture.
type backing struct {
	inode   uint64
	content *layer.Content // nil if there is no id
	id      int32
	users   int
	// element is the position of an idle file in the list of idle files; round is the round in
	// which it became idle.
	element *list.Element
	round   int
}

const (
	// idleTime is the shortest time for which a closed file stays registered with the kernel for direct
	// reading, as programs often open it again; the longest is twice that. A file removed from the lower
	// occupies its space until then.
	idleTime = 2 * time.Second
	// maxIdle bounds the number of closed files that stay registered with the kernel for direct reading,
	// since each takes an open descriptor. Beyond it the one closed longest ago is unregistered.
	maxIdle = 4096
)

func newPassthrough(f *layer.FS) *passthrough {
	p := &passthrough{f: f, backings: map[uint64]*backing{}, maxIdle: maxIdle}
	var most unix.Rlimit // limit of descriptors; each backing takes one
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &most) == nil {
		p.maxIdle = int(min(maxIdle, most.Cur/4, math.MaxInt32))
	}
	return p
}

// open opens an inode for direct reading by the kernel, and returns its backing id, or 0 if the kernel has to
// read by requests.
func (p *passthrough) open(inode uint64) (id int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.backings[inode]
	if o != nil && o.users == 0 && !o.content.Current(inode) {
		p.drop(o)
		o = nil
	}
	if o == nil {
		o = p.register(inode)
		p.backings[inode] = o
	}
	if o.element != nil {
		p.idle.Remove(o.element)
		o.element = nil
	}
	o.users++
	return o.id
}

func (p *passthrough) register(inode uint64) *backing {
	o := &backing{inode: inode}
	c, err := p.f.Content(inode)
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

func (p *passthrough) close(inode uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.backings[inode]
	if o == nil {
		return
	}
	if o.users--; o.users > 0 {
		return
	}
	if o.content == nil {
		delete(p.backings, inode)
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

// drop ends the direct reading of the file o by the kernel, and closes the file. No process may have it open.
// The caller holds mu.
func (p *passthrough) drop(o *backing) {
	p.idle.Remove(o.element)
	delete(p.backings, o.inode)
	_ = p.server.UnregisterBackingFd(o.id) // cannot fail: it is registered
	o.content.Close()
}

// expireIdle ends the direct reading by the kernel of files that nobody has had open for a whole idleTime,
// and runs again later while any are left.
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

// closeIdle unregisters all files that the kernel may read directly but nobody has open, when the server
// ends.
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
