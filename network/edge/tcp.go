//go:build linux

package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/snapfs/snapfs/network"
)

// connection handles a connection attempt (SYN) from inside the sandbox, in its own goroutine. It completes
// the handshake once the host's connection to the destination is established, and resets it otherwise, so
// that a client sees "connection refused" and never hangs.
func (e *Edge) connection(r *tcp.ForwarderRequest) {
	if !e.enter() {
		r.Complete(true)
		return
	}
	defer e.work.Done()
	t, why := e.aimTCP(destination(r.ID()))
	if rule, ask := e.asksAbout(t, why); ask {
		if t, why = e.hold(t, rule); why == "" && !t.once { // a rule may allow it now
			t, why = e.aimTCP(destination(r.ID()))
		}
	}
	if why == "" {
		why = e.unread(t)
	}
	if why != "" {
		ev := t.event(network.TCP)
		ev.Why = why
		e.refuse(ev) // before the client knows: it may end, and the proxy with it
		r.Complete(true)
		return
	}
	f, why := e.open(network.TCP, t)
	if why != "" {
		ev := t.event(network.TCP)
		ev.Why = why
		e.refuse(ev) // before the client knows: it may end, and the proxy with it
		r.Complete(true)
		return
	}
	e.connect(r, f, t)
}

// enter adds the present goroutine to those that Close waits for; the goroutine must call e.work.Done at its
// end. It returns false if the proxy is closed: then the goroutine must return without Done.
func (e *Edge) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.work.Add(1)
	}
	return !e.closed
}

func (e *Edge) connect(r *tcp.ForwarderRequest, f *flow, t target) {
	ctx, stop := context.WithTimeout(f.ctx, connectTime)
	defer stop()
	outside, err := e.reach(ctx, "tcp", &t)
	if err != nil {
		f.fail(t, err)
		r.Complete(true)
		return
	}
	var queue waiter.Queue
	end, bad := r.CreateEndpoint(&queue)
	if bad != nil {
		r.Complete(true)
		drop(outside)
		f.fail(t, errors.New("the sandbox gave up: "+bad.String()))
		return
	}
	r.Complete(false)
	end.SocketOptions().SetKeepAlive(true)
	end.SocketOptions().SetDelayOption(false)
	f.bound(end, outside)
	inside := newInner(&queue, end)
	f.onCut(func() {
		inside.reset()
		reset(outside)
	})
	f.begin(t)
	if e.takes(t) {
		f.broker(inside, outside, t)
		f.end()
		return
	}
	j := newInspector(t.inspectedName(), e.options.NoServerName)
	j.web = webPort(t.port)
	j.echRefusal = func() string {
		to := t
		to.terms = f.terms() // the current options
		return e.echRefusal(to)
	}
	f.relay(inside, outside, j)
	drop(inside)
	drop(outside)
	f.end()
}

// unreached returns err, the failure of connecting to a server, as one line of text, for an event.
func unreached(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "no answer in time"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// reset aborts a connection with a server, so that the server sees a reset.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // on failure the connection closes normally
	}
	drop(conn)
}

// relay copies bytes between the process inside and the server outside, both ways, until both sides have
// ended or one has failed. j inspects the bytes of the process.
func (f *flow) relay(inside *inner, outside net.Conn, j *inspector) {
	var both sync.WaitGroup
	both.Go(func() { f.inward(inside, outside, j) })
	f.outward(inside, outside, j)
	both.Wait()
}

// inward copies the server's bytes to the process inside the sandbox, without waiting for the process to send
// first. It shows them to the inspector j, which may need the status of a reply.
func (f *flow) inward(inside *inner, outside net.Conn, j *inspector) {
	buf := f.getBuffer()
	defer f.putBuffer(buf)
	for {
		n, err := outside.Read(*buf)
		if n > 0 {
			j.answered((*buf)[:n])
			if !f.count(n, true) {
				return
			}
			if _, err := inside.Write((*buf)[:n]); err != nil {
				f.broken(inside, outside)
				return
			}
		}
		if err != nil {
			j.answerEnds()
			if !errors.Is(err, io.EOF) || inside.CloseWrite() != nil {
				f.broken(inside, outside)
			}
			return
		}
	}
}

// outward copies the bytes of the process inside the sandbox to the server, as far as the inspector j
// releases them.
func (f *flow) outward(inside *inner, outside net.Conn, j *inspector) {
	buf := f.getBuffer()
	defer f.putBuffer(buf)
	for {
		n, err := inside.Read(*buf)
		if timed(err) {
			if !f.send(inside, outside, j.release()) {
				return
			}
			err = nil
		}
		if !f.forward(inside, outside, j, (*buf)[:n]) {
			return
		}
		if err != nil {
			f.outwardEnds(inside, outside, j, err)
			return
		}
		if !j.wait(inside) {
			return
		}
	}
}

// timed reports whether err means that a read reached its deadline. It asks for a net.Error, since the error
// of the TCP/IP stack at the inner end is not one of package os.
func timed(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// forward inspects p, bytes of the process inside, and sends those that the inspector j releases to the
// server. It returns false when the connection must end.
func (f *flow) forward(inside *inner, outside net.Conn, j *inspector, p []byte) bool {
	for {
		pass, why := j.feed(p)
		if why != "" {
			f.cut(why)
			return false
		}
		if !f.send(inside, outside, pass) {
			return false
		}
		if !j.waits() {
			return true
		}
		if !j.await(f.ctx) {
			return false
		}
		p = nil
	}
}

// send writes p to the server and counts its bytes towards the sandbox's limits. It returns false when the
// connection must end.
func (f *flow) send(inside *inner, outside net.Conn, p []byte) bool {
	if len(p) == 0 {
		return true
	}
	if !f.count(len(p), false) {
		return false
	}
	if _, err := outside.Write(p); err != nil {
		f.broken(inside, outside)
		return false
	}
	return true
}

// wait sets a deadline for the next read from the client while it is undecided whether the first bytes begin
// an HTTP request, and removes the deadline afterwards. It returns false on an error.
func (j *inspector) wait(inside *inner) bool {
	var when time.Time
	if j.undecided() {
		when = time.Now().Add(patience)
	}
	if when.IsZero() && !j.timed {
		return true
	}
	j.timed = !when.IsZero()
	return inside.SetReadDeadline(when) == nil
}

// outwardEnds handles the end, or the error err, of the data of the process inside, and passes it on to the
// server.
func (f *flow) outwardEnds(inside *inner, outside net.Conn, j *inspector, err error) {
	if errors.Is(err, io.EOF) && !f.send(inside, outside, j.release()) {
		return
	}
	if !errors.Is(err, io.EOF) || closeWrite(outside) != nil {
		f.broken(inside, outside)
	}
}

// broken aborts both connections, inside and outside, when one fails, so that the other end sees a reset too.
func (f *flow) broken(inside *inner, outside net.Conn) {
	inside.reset()
	reset(outside)
}
