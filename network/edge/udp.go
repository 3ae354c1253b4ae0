//go:build linux

package edge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/snapfs/snapfs/network"
)

// quicPort is the UDP port on which clients try QUIC before TCP. The proxy refuses each datagram to it unless
// QUIC is allowed.
const quicPort = 443

// datagram handles the first UDP datagram between two ports. It blocks other packets, so it decides without
// DNS lookups. It returns false for a refused datagram, which the stack answers with "port unreachable".
func (e *Edge) datagram(r *udp.ForwarderRequest) (handled bool) {
	t, why := e.aim(destination(r.ID()))
	if why == "" && t.port == quicPort && !e.quic(t) {
		why = quicWhy
	}
	if why == "" && t.name != "" && e.Rules().Reads(t.name, t.port) {
		why = "the rule allows HTTP only"
	}
	if why == "" {
		why = e.options.Broker.Unsearchable("a datagram")
	}
	var f *flow
	if why == "" {
		f, why = e.open(network.UDP, t)
	}
	if why != "" {
		ev := t.event(network.UDP)
		ev.Why = why
		e.refuse(ev)
		return false
	}
	var queue waiter.Queue
	end, bad := r.CreateEndpoint(&queue)
	if bad != nil {
		f.fail(t, errors.New(bad.String()))
		return false
	}
	inside := gonet.NewUDPConn(&queue, end)
	if !e.spawn(func() { e.datagrams(f, t, inside) }) {
		drop(inside)
		f.forget()
	}
	return true
}

// datagrams relays the datagrams of the flow f between inside and the destination t, until both sides are
// silent for a minute.
func (e *Edge) datagrams(f *flow, t target, inside *gonet.UDPConn) {
	defer drop(inside)
	ctx, stop := context.WithTimeout(f.ctx, connectTime)
	defer stop()
	outside, err := e.reach(ctx, "udp", &t)
	if err != nil {
		f.fail(t, err)
		return
	}
	defer drop(outside)
	f.onCut(func() {
		drop(inside)
		drop(outside)
	})
	f.begin(t)
	idle := time.AfterFunc(idleFlow, func() {
		drop(inside)
		drop(outside)
	})
	defer idle.Stop()
	var both sync.WaitGroup
	var watch quicWatch
	both.Go(func() {
		f.datagramsOne(inside, outside, idle, &watch, true)
		drop(inside)
	})
	f.datagramsOne(outside, inside, idle, &watch, false)
	drop(outside)
	both.Wait()
	f.end()
}

// datagramsOne copies datagrams in one direction, into the sandbox if in is set, and ends the flow if watch
// recognises QUIC that is not allowed. A datagram that fails to send is lost, like any lost packet.
func (f *flow) datagramsOne(to, from net.Conn, idle *time.Timer, watch *quicWatch, in bool) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return // closed, or the port is unreachable: the next datagram begins a new flow
		}
		quic := in && watch.inward(buf[:n]) || !in && isQUIC(buf[:n])
		if !in {
			watch.outward(buf[:n])
		}
		if quic && !f.edge.options.QUIC && !f.terms().QUIC {
			f.cut(quicWhy)
			return
		}
		if !f.count(n, in) {
			return
		}
		idle.Reset(idleFlow)
		if _, err := to.Write(buf[:n]); err != nil && errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// maxDatagram is the size in bytes of a buffer for any datagram: the length field of UDP has 16 bits.
const maxDatagram = 1 << 16

const quicWhy = "QUIC hides its server name; use TCP, or a rule with +quic"

// quic reports whether the protocol QUIC may be used with the destination t, by the proxy's options or t's
// rule.
func (e *Edge) quic(t target) bool { return (e.options.QUIC || t.terms.QUIC) && !e.takes(t) }

// isQUIC reports whether the datagram b is the first of a QUIC connection, on any port: a long header of a
// version that servers have (RFC 9000, 17.2.2; RFC 9369; the drafts; Google's, Facebook's and Microsoft's
// own) in a datagram of at least the size of a first one.
func isQUIC(b []byte) bool {
	if len(b) < 1200 || b[0]&0xc0 != 0xc0 {
		return false
	}
	switch version := binary.BigEndian.Uint32(b[1:]); {
	case version == 1, version == 0x6b3343cf, version>>8 == 0xff0000, version>>8 == 0xfaceb0, version>>16 == 0xabcd:
		return true
	default:
		return (b[1] == 'Q' || b[1] == 'T') && b[2] == '0' && b[3] >= '0' && b[3] <= '9' && b[4] >= '0' && b[4] <= '9'
	}
}

// A quicWatch recognises QUIC of an unknown version in a flow of datagrams by the server's reply, which
// repeats the version and the id that the client chose (RFC 8999, 5.1).
type quicWatch struct {
	mu     sync.Mutex
	client []byte // version and id of the last datagram that could begin a connection
}

// outward notes the version and id of a datagram of the client that could begin a QUIC connection.
func (q *quicWatch) outward(b []byte) {
	version, _, source, ok := longHeader(b)
	if !ok || len(b) < 1200 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.client = append(append(q.client[:0], version...), source...)
}

// inward reports whether a datagram of the server is the QUIC reply to the client's datagram that outward
// noted, so that the flow is QUIC.
func (q *quicWatch) inward(b []byte) bool {
	version, target, _, ok := longHeader(b)
	if !ok {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.client) >= len(version) && bytes.Equal(q.client[:len(version)], version) && bytes.Equal(q.client[len(version):], target)
}

// longHeader parses the start of a datagram that all versions of QUIC have in common (RFC 8999, 5.1): the
// version, and the ids of receiver (target) and sender (source). ok is false for another datagram.
func longHeader(b []byte) (version, target, source []byte, ok bool) {
	c := &cursor{b: b}
	first := c.number(1)
	version = c.take(4)
	target, source = c.take(c.number(1)), c.take(c.number(1))
	return version, target, source, !c.bad && first&0x80 != 0
}
