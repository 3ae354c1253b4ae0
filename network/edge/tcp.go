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

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/snapfs/snapfs/network"
)

// connection is called with each SYN, in a goroutine of its own. The handshake is answered when the
// host's connection stands, and with a reset where it does not: a client sees "connection refused" and
// never hangs.
func (e *Edge) connection(r *tcp.ForwarderRequest) {
	if !e.enter() {
		r.Complete(true)
		return
	}
	defer e.work.Done()
	t, why := e.aim(destination(r.ID()))
	if why != "" {
		ev := t.event(network.TCP)
		ev.Why = why
		e.refuse(ev) // before the client knows: it may end, and the edge with it
		r.Complete(true)
		return
	}
	f, why := e.open(network.TCP, t)
	if why != "" {
		ev := t.event(network.TCP)
		ev.Why = why
		e.refuse(ev) // before the client knows: it may end, and the edge with it
		r.Complete(true)
		return
	}
	e.connect(r, f, t)
}

// enter is goes for a goroutine that somebody else started; work.Done ends it.
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
	inside := &inner{gonet.NewTCPConn(&queue, end), end}
	f.onCut(func() {
		inside.reset()
		reset(outside)
	})
	f.begin(t)
	j := newJudge(t.read(), e.options.NoServerName)
	j.hidden = func() string {
		to := t
		to.terms = f.terms() // as they are now
		return e.hides(to)
	}
	f.relay(inside, outside, j)
	drop(inside)
	drop(outside)
	f.end()
}

// unreached is why a target was not reached, in one line.
func unreached(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "no answer in time"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// An inner connection is one with a process inside.
type inner struct {
	*gonet.TCPConn
	end tcpip.Endpoint
}

// reset ends it at once, in a way that the process sees.
func (c *inner) reset() { c.end.Abort() }

// reset ends a connection outside so that its server sees that it was cut.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closes softly where it does not work
	}
	drop(conn)
}

// relay carries bytes both ways until both ends have said that they are done, or one is broken.
func (f *flow) relay(inside *inner, outside net.Conn, j *judge) {
	var both sync.WaitGroup
	both.Go(func() { f.inward(inside, outside, j) })
	f.outward(inside, outside, j)
	both.Wait()
}

// inward carries what the server says, at once: a server that speaks first waits for no one.
func (f *flow) inward(inside *inner, outside net.Conn, j *judge) {
	buf := f.buffer()
	defer f.give(buf)
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

// outward carries what the process inside says, as far as it was judged.
func (f *flow) outward(inside *inner, outside net.Conn, j *judge) {
	buf := f.buffer()
	defer f.give(buf)
	for {
		n, err := inside.Read(*buf)
		if timed(err) {
			if !f.say(inside, outside, j.release()) {
				return
			}
			err = nil
		}
		if !f.judged(inside, outside, j, (*buf)[:n]) {
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

// timed says that a read found nothing in time. The stack's error is none of package os.
func timed(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// judged passes on what may pass of p, and of what was held before it.
func (f *flow) judged(inside *inner, outside net.Conn, j *judge, p []byte) bool {
	for {
		pass, why := j.feed(p)
		if why != "" {
			f.cut(why)
			return false
		}
		if !f.say(inside, outside, pass) {
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

// say writes to the server.
func (f *flow) say(inside *inner, outside net.Conn, p []byte) bool {
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

// wait bounds the time of the next read while the first bytes are undecided.
func (j *judge) wait(inside *inner) bool {
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

// outwardEnds carries the end of what the process says.
func (f *flow) outwardEnds(inside *inner, outside net.Conn, j *judge, err error) {
	if errors.Is(err, io.EOF) && !f.say(inside, outside, j.release()) {
		return
	}
	if !errors.Is(err, io.EOF) || closeWrite(outside) != nil {
		f.broken(inside, outside)
	}
}

// broken ends both when one is: a reset is carried on as one.
func (f *flow) broken(inside *inner, outside net.Conn) {
	inside.reset()
	reset(outside)
}
