package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A directConn is a connection to the server of an exchange, over which the requests of one client connection with
// HTTP/1 go one after another. The goroutine of the request reads and writes it. An http.Transport hands each request
// to two other goroutines and back, which costs more than all other work of the broker for the request.
//
// Package net/http writes the requests and reads the responses. A directConn takes only requests that may be repeated
// and have no body. An http.Transport takes the others, and all requests to a server with HTTP/2.
type directConn struct {
	raw  *pausable
	conn net.Conn // raw, or TLS on it
	in   *bufio.Reader
	out  *bufio.Writer
	left int64 // bytes that may still be read, to bound the head of a response
	used bool  // a response has come on it
}

// suits reports whether out, made of the client's request r, may go to the server over a [directConn].
func (c *exchange) suits(r, out *http.Request) bool {
	return !c.multiplexed && r.ProtoMajor == 1 && out.Body == http.NoBody && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// roundTrip sends out, made of the client's request r, to the server, and returns the response. The caller closes its
// body. If the server closed an idle connection just before the request, roundTrip sends the request once more.
func (c *exchange) roundTrip(ctx context.Context, r, out *http.Request) (*http.Response, error) {
	if !c.suits(r, out) {
		return c.transport.RoundTrip(out.WithContext(ctx))
	}
	if c.direct != nil && !c.direct.clean() {
		c.closeDirect()
	}
	if c.direct == nil {
		conn, err := c.dial(ctx, out.URL.Scheme == "https")
		if err != nil {
			return nil, err
		}
		if t, ok := conn.conn.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
			c.mu.Lock()
			c.spare, c.multiplexed = t, true
			c.mu.Unlock()
			return c.transport.RoundTrip(out.WithContext(ctx))
		}
		c.direct = conn
	}
	d := c.direct
	stop := context.AfterFunc(ctx, func() { _ = d.raw.Close() })
	response, err := d.exchange(out)
	if err == nil {
		response.Body = &directBody{ReadCloser: response.Body, exchange: c, stop: stop, keep: !response.Close && response.StatusCode != http.StatusSwitchingProtocols}
		return response, nil
	}
	stop()
	again := d.used && d.silent() && ctx.Err() == nil // the server closed the idle connection meanwhile
	c.closeDirect()
	if again {
		return c.transport.RoundTrip(out.WithContext(ctx))
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return nil, err
}

// dialRaw returns a connection to the server: the one that the exchange began with, or a new one.
func (c *exchange) dialRaw(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	first := c.first
	c.first = nil
	c.mu.Unlock()
	if first != nil {
		return first, nil
	}
	return c.to.Dial(ctx)
}

// dial returns a new connection to the server. With secure it has TLS, and the certificate of the server is verified.
func (c *exchange) dial(ctx context.Context, secure bool) (*directConn, error) {
	raw, err := c.dialRaw(ctx)
	if err != nil {
		return nil, err
	}
	d := &directConn{raw: newPausable(raw)}
	d.conn = d.raw
	if secure {
		ctx, cancel := context.WithTimeout(ctx, handshakeTime)
		defer cancel()
		t := tls.Client(d.raw, c.clientTLS())
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		d.conn = t
	}
	d.in, d.out = bufio.NewReader(d), bufio.NewWriter(d.conn)
	return d, nil
}

// dialTLS returns a connection with TLS for the http.Transport: the spare one, made before it was known that the
// server has HTTP/2, or a new one.
func (c *exchange) dialTLS(ctx context.Context, _, _ string) (net.Conn, error) {
	c.mu.Lock()
	spare := c.spare
	c.spare = nil
	c.mu.Unlock()
	if spare != nil {
		return spare, nil
	}
	d, err := c.dial(ctx, true)
	if err != nil {
		return nil, err
	}
	return d.conn, nil
}

// closeDirect closes the connection of direct requests, if there is one. The next request makes another.
func (c *exchange) closeDirect() {
	if c.direct != nil {
		_ = c.direct.raw.Close()
		c.direct = nil
	}
}

// maxInterim is how many interim responses (1xx) the proxy reads before the response to a request.
const maxInterim = 5

var (
	errLongHead = errors.New("the head of the response is too long")
	errInterim  = errors.New("too many interim responses")
)

// exchange writes the request out and reads the head of its response.
func (d *directConn) exchange(out *http.Request) (*http.Response, error) {
	d.left = maxHead
	if err := out.Write(d.out); err != nil {
		return nil, err
	}
	if err := d.out.Flush(); err != nil {
		return nil, err
	}
	for range maxInterim + 1 {
		response, err := http.ReadResponse(d.in, out)
		if err != nil {
			return nil, err
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			d.left, d.used = math.MaxInt64, true
			return response, nil
		}
	}
	return nil, errInterim
}

// silent reports whether the server has sent nothing since the last request was written.
func (d *directConn) silent() bool { return d.left == maxHead }

// clean reports whether the next request may be sent. It may not if the server has closed the connection, or has sent
// anything since the end of the last response, which would be taken for the response to the next request.
func (d *directConn) clean() bool {
	d.left = math.MaxInt64
	d.raw.paused = true
	_, err := d.in.Peek(1)
	d.raw.paused = false
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// Read reads from the connection, while the head of a response is read at most the bytes that a head may have.
func (d *directConn) Read(p []byte) (int, error) {
	if d.left <= 0 {
		return 0, errLongHead
	}
	n, err := d.conn.Read(p[:min(int64(len(p)), d.left)])
	d.left -= int64(n)
	return n, err
}

// A pausable is a connection of which Read does not wait while paused is set: it returns the data that has arrived, or
// os.ErrDeadlineExceeded if there is none.
type pausable struct {
	net.Conn
	paused bool
	socket syscall.RawConn // or nil: then Read fails while paused is set
}

func newPausable(conn net.Conn) *pausable {
	p := &pausable{Conn: conn}
	if socket, ok := conn.(syscall.Conn); ok {
		p.socket, _ = socket.SyscallConn() // an error is that of Read
	}
	return p
}

func (p *pausable) Read(b []byte) (int, error) {
	switch {
	case !p.paused:
		return p.Conn.Read(b)
	case p.socket == nil:
		return 0, io.ErrNoProgress
	}
	var n int
	var failed error
	err := p.socket.Read(func(fd uintptr) bool {
		n, failed = unix.Read(int(fd), b)
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(failed, unix.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// A directBody is the body of a response on a [directConn]. Close before the end of the body closes the connection,
// too.
type directBody struct {
	io.ReadCloser
	exchange *exchange
	stop     func() bool // ends the watch for the cancellation of the request
	keep     bool        // the server keeps the connection open after the response
	ended    bool
}

func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

func (b *directBody) Close() error {
	over := !b.stop() // the request was cancelled, and the connection closed
	if over || !b.keep || !b.ended && b.ReadCloser != http.NoBody {
		b.exchange.closeDirect()
	}
	return b.ReadCloser.Close()
}
