//go:build linux

package edge

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/waiter"
)

// An inner is a TCP connection of the proxy with a process inside the sandbox, on the proxy's own TCP/IP
// stack.
//
// It reads as a gonet.TCPConn does, but cheaper for each wait and for each deadline. An http.Server sets five deadlines
// for a request.
type inner struct {
	*gonet.TCPConn
	end  tcpip.Endpoint
	wake chan struct{} // gets a value when something may be read, or the deadline has come

	reading sync.Mutex // held by Read

	mu       sync.Mutex // guards the fields below
	deadline time.Time  // of reading, or zero
	timer    *time.Timer
	fires    time.Time // when timer fires, or zero: never later than deadline
}

// newInner returns the connection of the endpoint end, whose events queue distributes.
func newInner(queue *waiter.Queue, end tcpip.Endpoint) *inner {
	c := &inner{TCPConn: gonet.NewTCPConn(queue, end), end: end}
	var entry waiter.Entry
	entry, c.wake = waiter.NewChannelEntry(waiter.ReadableEvents)
	queue.EventRegister(&entry)
	return c
}

// reset aborts the connection, so that the process inside the sandbox sees a reset.
func (c *inner) reset() { c.end.Abort() }

// Read reads from the process inside the sandbox. After the deadline it returns os.ErrDeadlineExceeded.
func (c *inner) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		if c.late() {
			return 0, os.ErrDeadlineExceeded
		}
		to := tcpip.SliceWriter(b)
		result, err := c.end.Read(&to, tcpip.ReadOptions{})
		switch err.(type) {
		case nil:
			c.end.ModerateRecvBuf(result.Count)
			return result.Count, nil
		case *tcpip.ErrWouldBlock:
			<-c.wake
		case *tcpip.ErrClosedForReceive:
			return 0, io.EOF
		default:
			return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: errors.New(err.String())}
		}
	}
}

// late reports whether the deadline of reading has come.
func (c *inner) late() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.deadline.IsZero() && time.Until(c.deadline) <= 0
}

// SetDeadline sets the deadlines of reading and writing.
func (c *inner) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reading, also for a Read that waits.
func (c *inner) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	c.watch()
	return nil
}

// watch makes Read wake up at the deadline. A timer that fires earlier stays as it is: expire then sets it again. The
// caller holds c.mu.
func (c *inner) watch() {
	if c.deadline.IsZero() || !c.fires.IsZero() && !c.fires.After(c.deadline) {
		return
	}
	left := time.Until(c.deadline)
	switch {
	case left <= 0:
		select {
		case c.wake <- struct{}{}:
		default: // it will wake up
		}
		return
	case c.timer == nil:
		c.timer = time.AfterFunc(left, c.expire)
	default:
		c.timer.Reset(left)
	}
	c.fires = c.deadline
}

// expire runs when the timer fires: it wakes Read up, or sets the timer for a later deadline.
func (c *inner) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fires = time.Time{}
	c.watch()
}

// Close closes the connection and stops its timer.
func (c *inner) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	return c.TCPConn.Close()
}
