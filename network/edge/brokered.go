//go:build linux

package edge

import (
	"context"
	"net"
	"net/netip"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/broker"
)

// aimTCP returns the destination outside for dst, the address to which a process in the sandbox opens a TCP
// connection. An address of the proxy itself may be a base URL, which stands for a server; others are as in
// [Edge.aim]. why is the reason of a refusal, or "".
func (e *Edge) aimTCP(dst netip.AddrPort) (t target, why string) {
	if a := dst.Addr(); e.options.Broker != nil && (a == network.Gateway4().Addr() || a == network.Gateway6().Addr()) {
		if name, port, ok := e.options.Broker.Base(dst.Port()); ok {
			return target{name: name, port: port, at: dst.Port()}.matchRules(e.Rules())
		}
	}
	return e.aim(dst)
}

// takes reports whether the proxy must read the HTTP requests on connections to the destination t, because a
// secret is for that server, a rule allows only some methods there, a budget counts them, or the sandbox has labelled
// files.
func (e *Edge) takes(t target) bool {
	return e.options.Broker != nil && (t.at != 0 || e.options.Broker.Takes(t.name, t.port))
}

// unread returns a reason to refuse a connection to the destination t: a rule allows only some HTTP methods
// there, so the proxy would have to read the requests, but it was started before that rule and cannot; or the sandbox
// has labelled files, and the proxy could not search what is sent. Otherwise it returns "".
func (e *Edge) unread(t target) string {
	if e.options.Broker == nil && t.name != "" && e.Rules().Reads(t.name, t.port) {
		return "the rule has methods, and came after the start; stop the sandbox and start it again"
	}
	switch {
	case t.name == "":
		return e.options.Broker.Unsearchable("what is sent to an address, without a name,")
	case t.terms.TCP:
		return e.options.Broker.Unsearchable("another protocol (+tcp)")
	}
	return ""
}

// broker reads the requests on the connection inside, from the sandbox, and sends them to the server t, until
// the connection ends. Both connections are closed then.
func (f *flow) broker(inside *inner, outside net.Conn, t target) {
	to := broker.Target{
		Name: t.name, Port: t.port, Rule: t.rule, Once: t.once, ID: f.id, At: t.at, First: outside,
		Dial: func(ctx context.Context) (net.Conn, error) {
			more := t
			conn, err := f.edge.reach(ctx, "tcp", &more)
			if err == nil {
				f.onCut(func() { drop(conn) })
			}
			return conn, err
		},
	}
	if err := f.edge.options.Broker.Serve(f.ctx, &countedConn{inside, f}, to); err != nil {
		f.cut(err.Error())
	}
	drop(inside)
	drop(outside)
}

// A countedConn is a connection from inside the sandbox whose bytes are counted, while the proxy reads its
// HTTP requests. Reading and writing fail with net.ErrClosed when the rules' limit of bytes is reached.
type countedConn struct {
	*inner
	flow *flow
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.inner.Read(p)
	if n > 0 && !c.flow.count(n, false) {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	if !c.flow.count(len(p), true) {
		return 0, net.ErrClosed
	}
	return c.inner.Write(p)
}

// request passes the event ev, a decision on an HTTP request of the sandbox, to the supervisor.
func (e *Edge) request(ev network.Event) {
	if ev.Allowed {
		e.events.put(ev)
		return
	}
	e.refuse(ev)
}
