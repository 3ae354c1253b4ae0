//go:build linux

package edge

import (
	"context"
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

// quicPort is the port on which clients try QUIC before TCP.
const quicPort = 443

// datagram handles the first datagram between two ports. It blocks other packets, so it
// decides without DNS lookups. A refused datagram is answered with "port unreachable".
func (e *Edge) datagram(r *udp.ForwarderRequest) (handled bool) {
	t, why := e.aim(destination(r.ID()))
	if why == "" && t.port == quicPort && !e.quic(t) {
		why = quicWhy
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

// datagrams relays one flow until both sides are silent for a minute.
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
	both.Go(func() {
		f.datagramsOne(inside, outside, idle, true)
		drop(inside)
	})
	f.datagramsOne(outside, inside, idle, false)
	drop(outside)
	both.Wait()
	f.end()
}

// datagramsOne copies datagrams in one direction. A datagram that fails to send is lost, like
// any lost packet.
func (f *flow) datagramsOne(to, from net.Conn, idle *time.Timer, in bool) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return // closed, or the port is unreachable: the next datagram begins a new flow
		}
		if !in && isQUIC(buf[:n]) && !f.edge.options.QUIC && !f.terms().QUIC {
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

// maxDatagram is a buffer size for any datagram: UDP has 16 bits for the length.
const maxDatagram = 1 << 16

const quicWhy = "QUIC hides its server name; use TCP"

// quic reports whether QUIC may pass to a target, by the options or its rule.
func (e *Edge) quic(t target) bool { return e.options.QUIC || t.terms.QUIC }

// isQUIC reports whether a datagram is the first of a QUIC connection, on any port: a long header of version 1
// or 2 (RFC 9000, 17.2.2; RFC 9369) in a datagram of at least the size of a first one.
func isQUIC(b []byte) bool {
	if len(b) < 1200 || b[0]&0xc0 != 0xc0 {
		return false
	}
	version := [4]byte(b[1:5])
	return version == [4]byte{0, 0, 0, 1} || version == [4]byte{0x6b, 0x33, 0x43, 0xcf}
}
