//go:build linux

package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/snapfs/snapfs/network"
)

// Options of an edge. The zero value allows nothing and tells nobody.
type Options struct {
	// Rules at the beginning; see [Edge.Allow].
	Rules network.Rules
	// Counters is what was counted before, and what the limits of rules go on from.
	Counters network.Counters
	// Names have the addresses of these numbers already, and LastName was given last; see network.Message.
	Names    map[string]int
	LastName int
	// Event is called with each event, one after the other, from a goroutine of its own. Traffic does not wait for it: what
	// it is too slow for is dropped and counted. Close waits until it has returned, so it must not call Close.
	Event func(network.Event)
	// Ready, where it is not nil, is called before the first packet is read. After an error none is.
	Ready func() error
	// MaxConnections is how many connections and datagram flows may be open at once; 0 means 1024. One that is not read from can take
	// 2.5 MiB of memory, from the 65th on 256 KiB.
	MaxConnections int
	// MaxBytes bounds the payload in and out together, over the edge's life; 0 is no limit.
	MaxBytes int64
	// NoServerName lets a TLS client pass that does not say whom it wants to speak to.
	NoServerName bool
	// QUIC lets datagrams of QUIC pass, whose server name cannot be read.
	QUIC bool
	// Lookup and Dial are the host's own where they are nil. Dial gets an address that was checked.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
}

// Times that an edge waits.
const (
	connectTime = 20 * time.Second // for a name's addresses and a connection to one
	idleFlow    = 60 * time.Second // between datagrams, until a flow is forgotten
	patience    = 100 * time.Millisecond
	lastWord    = 500 * time.Millisecond // for what waits on the sandbox when the edge is closed
)

// An Edge is the other end of a sandbox's network. All methods are safe for many goroutines.
type Edge struct {
	options Options
	stack   *stack.Stack
	link    *link
	tun     *os.File
	gone    chan struct{} // closed when the TUN answers no more, or Close begins
	over    chan struct{} // closed when Close is done
	names   names
	events  queue
	ech     echServers
	rules   atomic.Pointer[network.Rules]

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// buffers of *[]byte, for relays: for the first flows, and for the others
	buffers, small sync.Pool

	mu     sync.Mutex // guards what follows
	flows  map[*flow]struct{}
	usages map[string]*usage // by rules without options
	closed bool

	ids      atomic.Uint64
	queries  atomic.Int64
	refusals atomic.Int64
	opened   atomic.Int64
	in, out  atomic.Int64
	quit     func() // closes gone, once
}

// ErrClosed says that the edge's life is over.
var ErrClosed = errors.New("network edge is closed")

// New puts an edge on a TUN device and begins to serve it. The device was made
// without packet information (IFF_TUN, IFF_NO_PI), and the interface inside is to have
// the addresses and the MTU of package network. The edge keeps a descriptor of its own of tun, which keeps the namespace
// alive: who ends the sandbox closes the edge.
// It costs under a millisecond and a dozen goroutines; an error leaves nothing.
func New(tun *os.File, o Options) (*Edge, error) {
	if o.MaxConnections == 0 {
		o.MaxConnections = 1024
	}
	e := &Edge{options: o, flows: map[*flow]struct{}{}, usages: map[string]*usage{}, gone: make(chan struct{}), over: make(chan struct{})}
	e.quit = sync.OnceFunc(func() { close(e.gone) })
	e.rules.Store(&o.Rules)
	e.restore(o.Counters)
	e.names.restore(o.Names, o.LastName)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	var err error
	if e.tun, err = duplicate(tun); err != nil {
		e.cancel()
		return nil, fmt.Errorf("network edge: %w", err)
	}
	e.events.start(o.Event)
	if err := e.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("network edge: %w", err), e.Close())
	}
	return e, nil
}

// Run waits until ctx is done or the TUN is gone, and closes the edge.
func (e *Edge) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-e.gone:
	}
	return e.Close()
}

// Close cuts every connection and answers when nothing of the edge is left: no goroutine, no
// descriptor. What it had to tell was told. It is safe to repeat, and to call from many places at once.
func (e *Edge) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	open := e.openFlows()
	e.mu.Unlock()
	e.quit()
	if !first {
		<-e.over
		return nil
	}
	defer close(e.over)
	e.cancel()
	for _, f := range open {
		f.cut(closedWhy)
	}
	e.settle()
	e.events.stop()
	return e.tun.Close()
}

// settle ends the stack, after what is under way had the time to say a last word: a reset, so that
// nobody inside waits for an answer.
func (e *Edge) settle() {
	done := make(chan struct{})
	go func() {
		e.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(lastWord):
	}
	if e.stack != nil {
		e.stack.Close()
	}
	<-done
	if e.link != nil {
		e.link.rest()
	}
	if e.stack != nil {
		e.stack.Wait()
	}
}

// openFlows is called with mu held.
func (e *Edge) openFlows() []*flow {
	open := make([]*flow, 0, len(e.flows))
	for f := range e.flows {
		open = append(open, f)
	}
	return open
}

// Rules that hold now.
func (e *Edge) Rules() network.Rules { return *e.rules.Load() }

// Allow replaces the rules. What is open and no longer allowed is cut.
func (e *Edge) Allow(r network.Rules) {
	e.rules.Store(&r)
	e.limitUsages(r)
	e.mu.Lock()
	open := e.openFlows()
	e.mu.Unlock()
	for _, f := range open {
		if why := f.still(r); why != "" {
			f.cut(why)
		}
	}
}

// Counters is what was done so far.
func (e *Edge) Counters() network.Counters {
	e.mu.Lock()
	open, rules := len(e.flows), e.counted()
	e.mu.Unlock()
	return network.Counters{
		Queries: e.queries.Load(), Refused: e.refusals.Load(), Opened: e.opened.Load(), Open: int64(open),
		BytesIn: e.in.Load(), BytesOut: e.out.Load(), EventsLost: e.events.lost.Load(), Rules: rules,
	}
}

// goes runs f in a goroutine that Close waits for, unless the edge is closed.
func (e *Edge) goes(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.work.Go(f)
	return true
}

// refuse tells of a decision against.
func (e *Edge) refuse(ev network.Event) {
	e.refusals.Add(1)
	ev.Allowed = false
	e.events.put(ev)
}
