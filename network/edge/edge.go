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
	"github.com/snapfs/snapfs/network/broker"
)

// Options configure the proxy of one sandbox's network. The zero value allows nothing and reports nothing.
type Options struct {
	// Rules are the initial rules; see [Edge.Allow].
	Rules network.Rules
	// Counters are the traffic counts before this proxy started, which count for the limits of
	// rules.
	Counters network.Counters
	// Names maps each name to the number of its addresses, from an earlier proxy, and LastName
	// is the last number given; see network.Message.
	Names    map[string]int
	LastName int
	// Events is called with some events in their order, one call at a time, from a goroutine of its own. If it is too slow, the proxy drops and
	// counts events instead of delaying traffic. Close waits for it, so it must not call Close.
	Events func([]network.Event)
	// Ready, unless nil, is called before the proxy reads the first packet. If it returns an
	// error, the proxy reads none.
	Ready func() error
	// MaxConnections bounds the open connections and datagram flows; 0 means 1024. Each of the
	// first 64 connections whose peer does not read can take 2.5 MiB of memory, later ones 256
	// KiB.
	MaxConnections int
	// MaxBytes bounds the payload in both directions together, over the proxy's life; 0 means
	// no limit.
	MaxBytes int64
	// NoServerName allows TLS clients that send no server name.
	NoServerName bool
	// QUIC allows the protocol QUIC, whose server name the proxy cannot read.
	QUIC bool
	// Lookup resolves names and Dial connects to an address that the proxy has checked; the
	// defaults are the host's resolver and network.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
	// Broker reads the connections that it takes, or is nil.
	Broker *broker.Broker
	// Asking makes the proxy hold connections to unknown destinations until a person decides;
	// nil refuses them at once. Questions, unless nil, is called with all that wait, one call at
	// a time, whenever they change, and before Events gets a new one.
	Asking    *network.Asking
	Questions func([]network.Question)
}

// Time limits of a proxy: how long it waits for servers and for silent connections.
const (
	connectTime = 20 * time.Second       // to resolve a name and connect to one of its addresses
	idleFlow    = 60 * time.Second       // without datagrams, until a flow is forgotten
	patience    = 100 * time.Millisecond // for the rest of a first line that may be HTTP
	lastWord    = 500 * time.Millisecond // for replies to the sandbox when the proxy closes
)

// An Edge is the proxy of one sandbox's network: it reads the sandbox's packets and relays allowed
// connections to the outside. All methods are safe for concurrent use.
type Edge struct {
	options   Options
	stack     *stack.Stack
	link      *link
	tun       *os.File
	done      chan struct{} // closed when Close is done
	names     names
	events    queue
	ech       echServers
	questions questions
	rules     atomic.Pointer[network.Rules]

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// buffers are pools of *[]byte for relays: one for the first flows, one for later ones.
	buffers, small sync.Pool

	mu     sync.Mutex // guards the fields below
	flows  map[*flow]struct{}
	usages map[string]*usage // by rule without options
	closed bool

	ids      atomic.Uint64
	queries  atomic.Int64
	refusals atomic.Int64
	opened   atomic.Int64
	in, out  atomic.Int64
}

// New starts the proxy of a sandbox's network on the TUN device tun. The device must be without packet
// information (IFF_TUN, IFF_NO_PI), and the interface inside must have the addresses and the MTU of package
// network. The proxy duplicates tun, which keeps the namespace alive: the owner of the sandbox must close the
// proxy.
//
// Cost: under a millisecond and a dozen goroutines. An error leaves nothing behind.
func New(tun *os.File, o Options) (*Edge, error) {
	if o.MaxConnections == 0 {
		o.MaxConnections = 1024
	}
	e := &Edge{options: o, flows: map[*flow]struct{}{}, usages: map[string]*usage{}, done: make(chan struct{})}
	e.rules.Store(&o.Rules)
	e.restore(o.Counters)
	e.names.restore(o.Names, o.LastName)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	var err error
	if err = e.questions.start(o.Asking); err != nil {
		e.cancel()
		return nil, fmt.Errorf("network proxy: %w", err)
	}
	if e.tun, err = duplicate(tun); err != nil {
		e.cancel()
		return nil, fmt.Errorf("network proxy: %w", err)
	}
	e.events.start(o.Events)
	if err := e.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("network proxy: %w", err), e.Close())
	}
	return e, nil
}

// Close cuts every connection through the proxy. It returns when every goroutine and descriptor of the proxy
// is closed and Options.Events has got every event. It may be called repeatedly and concurrently.
func (e *Edge) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	open := e.openFlows()
	e.mu.Unlock()
	if !first {
		<-e.done
		return nil
	}
	defer close(e.done)
	e.cancel()
	for _, f := range open {
		f.cut(closedWhy)
	}
	e.shutDown()
	e.events.stop()
	return e.tun.Close()
}

// shutDown ends the TCP/IP stack after giving open connections the time to send a reset, so that no process
// inside waits for a reply.
func (e *Edge) shutDown() {
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
		e.link.stop()
	}
	if e.stack != nil {
		e.stack.Wait()
	}
}

// openFlows returns the open connections and datagram flows, which the caller then checks or cuts. The caller
// holds e.mu.
func (e *Edge) openFlows() []*flow {
	open := make([]*flow, 0, len(e.flows))
	for f := range e.flows {
		open = append(open, f)
	}
	return open
}

// Rules returns the network rules that the proxy applies now.
func (e *Edge) Rules() network.Rules { return *e.rules.Load() }

// Allow replaces the network rules by r, and cuts open connections that r does not allow.
func (e *Edge) Allow(r network.Rules) {
	e.rules.Store(&r)
	e.limitUsages(r)
	e.settleAllowed(r)
	e.mu.Lock()
	open := e.openFlows()
	e.mu.Unlock()
	for _, f := range open {
		if why := f.recheck(r); why != "" {
			f.cut(why)
		}
	}
}

// Counters returns the totals of the sandbox's network traffic so far.
func (e *Edge) Counters() network.Counters {
	e.mu.Lock()
	open, rules := len(e.flows), e.counted()
	e.mu.Unlock()
	return network.Counters{
		Queries: e.queries.Load(), Refused: e.refusals.Load(), Opened: e.opened.Load(), Open: int64(open),
		BytesIn: e.in.Load(), BytesOut: e.out.Load(), EventsLost: e.events.lost.Load(), Rules: rules,
	}
}

// spawn runs f in a goroutine that Close waits for. It returns false if the proxy is closed.
func (e *Edge) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.work.Go(f)
	return true
}

// refuse counts the refusal of a connection or DNS query, and passes it as the event ev to the supervisor,
// the process that manages the sandbox.
func (e *Edge) refuse(ev network.Event) {
	e.refusals.Add(1)
	ev.Allowed = false
	e.events.put(ev)
}
