package mount

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
)

// A passage has the kernel read the files of a tree that nobody writes to from where their
// content lies: no request, and no second copy in memory (FOPEN_PASSTHROUGH, Linux 6.9; it
// takes root of the first user namespace). In exchange each open is a request.
type passage struct {
	f      *layer.FS
	server *fuse.Server
	mu     sync.Mutex
	open   map[uint64]*passing
}

// A passing is a file that is open. All opens of it are by one backing id, or, where there
// is none, by pages of its own: the kernel takes no mixture.
type passing struct {
	id    int32
	users int
}

// through opens a node. 0: it has to be read by requests.
func (p *passage) through(node uint64) (id int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.open[node]
	if o == nil {
		o = &passing{id: p.register(node)}
		p.open[node] = o
	}
	o.users++
	return o.id
}

func (p *passage) register(node uint64) int32 {
	fd, done, err := p.f.Content(node)
	if err != nil {
		return 0
	}
	defer done()
	id, errno := p.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	if errno != 0 { // its filesystem may be stacked on another
		return 0
	}
	return id
}

func (p *passage) close(node uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.open[node]
	if o == nil {
		return
	}
	if o.users--; o.users > 0 {
		return
	}
	delete(p.open, node)
	if o.id != 0 {
		_ = p.server.UnregisterBackingFd(o.id) // it is there
	}
}
