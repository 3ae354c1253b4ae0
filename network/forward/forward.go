// Package forward forwards a TCP port of this host's loopback to a port of a sandbox's own
// loopback.
//
//	client ─► 127.0.0.1:HOST, [::1]:HOST ─► forwarder ─► 127.0.0.1:PORT or [::1]:PORT of the sandbox
//
// A forward is the user's own way into the sandbox, so no network rule applies. Every user of
// the host can connect to its loopback, and so to the sandbox. A connection that no process
// inside accepts is reset.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/network"
)

// maxConnections is how many connections one forwarder has open at once; further ones are reset.
const maxConnections = 256

// dialTime is how long a forwarded connection waits for the server in the sandbox before it is reset.
const dialTime = 20 * time.Second

// Options configure a forwarder of a host port into a sandbox. Dial and Event are required.
type Options struct {
	// Port is the port inside. Host is the port on the host; 0 chooses a free one.
	Port, Host uint16
	// Dial connects to the port inside and returns the address that accepted the connection.
	Dial func(ctx context.Context, port uint16) (net.Conn, netip.Addr, error)
	// Event is called with the event of each new and each ended connection, concurrently.
	Event func(...network.Event)
}

// A Forwarder forwards one TCP port of the host's loopback into a sandbox. All methods are safe for
// concurrent use.
type Forwarder struct {
	options Options
	addrs   []netip.AddrPort
	listens []net.Listener
	ctx     context.Context // done when the forwarder is closed
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	conns map[net.Conn]struct{}
	open  int
	ids   uint64
}

// Open starts a forwarder: it listens at 127.0.0.1, and at ::1 if the host has IPv6. After an error nothing
// is left behind. The error matches syscall.EADDRINUSE if another program has the port, EACCES if only root
// may use it.
func Open(o Options) (*Forwarder, error) {
	in := &Forwarder{options: o, conns: map[net.Conn]struct{}{}}
	in.ctx, in.cancel = context.WithCancel(context.Background())
	const tries = 16 // a port that is free for one family may be taken for the other
	var err error
	for range tries {
		if err = in.listen(o.Host); err == nil || o.Host != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		in.cancel()
		return nil, err
	}
	for _, l := range in.listens {
		in.work.Go(func() { in.accept(l) })
	}
	return in, nil
}

func (f *Forwarder) listen(port uint16) error {
	for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
		if err != nil {
			if addr.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
				continue // this host has no IPv6
			}
			for _, l := range f.listens {
				err = errors.Join(err, l.Close())
			}
			f.listens, f.addrs = nil, nil
			return err
		}
		at, _ := l.Addr().(*net.TCPAddr)
		port = at.AddrPort().Port()
		f.listens, f.addrs = append(f.listens, l), append(f.addrs, at.AddrPort())
	}
	return nil
}

// Addrs returns the host's addresses at which the forwarder listens: one port number, at a loopback address
// of each IP version that the host has.
func (f *Forwarder) Addrs() []netip.AddrPort { return f.addrs }

// Close closes the listeners and resets the forwarded connections, and returns when all goroutines have
// ended. It may be called twice.
func (f *Forwarder) Close() error {
	f.cancel()
	var errs []error
	for _, l := range f.listens {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	f.mu.Lock()
	for conn := range f.conns {
		reset(conn)
	}
	f.mu.Unlock()
	f.work.Wait()
	return errors.Join(errs...)
}

func (f *Forwarder) accept(l net.Listener) {
	const pause = 10 * time.Millisecond
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			f.work.Go(func() { f.serve(conn) })
		case f.ctx.Err() != nil:
			return
		default: // this process has no free descriptor now
			time.Sleep(pause)
		}
	}
}

// serve forwards one connection into the sandbox, from accepting it to its end, and reports events about it.
func (f *Forwarder) serve(outside net.Conn) {
	ev := network.Event{Kind: network.Port, Port: f.options.Port}
	refuse := func(why string) {
		ev.Why = why
		f.report(ev)
		reset(outside)
	}
	var ok bool
	if ev.ID, ok = f.enter(outside); !ok {
		refuse("too many connections at once")
		return
	}
	defer f.leave(outside)
	ctx, stop := context.WithTimeout(f.ctx, dialTime)
	inside, addr, err := f.options.Dial(ctx, f.options.Port)
	stop()
	ev.Addr = addr
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		refuse("no process listens there")
		return
	case err != nil:
		refuse(strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	f.add(inside)
	defer f.drop(inside)
	ev.Allowed, ev.Rule = true, f.rule()
	f.report(ev)
	ev.Ended = true
	ev.BytesIn, ev.BytesOut = relay(inside, outside)
	f.report(ev)
}

// rule returns the text that the events of a forwarded connection have in place of a network rule.
func (f *Forwarder) rule() string { return "port " + f.addrs[0].String() }

func (f *Forwarder) report(ev network.Event) {
	ev.Time = time.Now()
	f.options.Event(ev)
}

// enter counts a new connection to the forwarder and returns its id; false if there are too many at once.
func (f *Forwarder) enter(conn net.Conn) (id uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids++
	if f.open >= maxConnections {
		return f.ids, false
	}
	f.open++
	f.track(conn)
	return f.ids, true
}

func (f *Forwarder) leave(conn net.Conn) {
	f.mu.Lock()
	f.open--
	f.mu.Unlock()
	f.drop(conn)
}

func (f *Forwarder) add(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.track(conn)
}

// track adds a connection to those that Close resets. If the forwarder is closed already, it resets the
// connection at once. The caller holds f.mu.
func (f *Forwarder) track(conn net.Conn) {
	f.conns[conn] = struct{}{}
	if f.ctx.Err() != nil {
		reset(conn)
	}
}

func (f *Forwarder) drop(conn net.Conn) {
	f.mu.Lock()
	delete(f.conns, conn)
	f.mu.Unlock()
	_ = conn.Close() // all data was sent, or the connection was reset
}

// relay copies bytes between the two connections, both ways, until both ends are done or one fails, which
// resets the other. It returns the numbers of bytes to and from the sandbox. The kernel moves the bytes
// (splice(2)) without copying them into this process.
func relay(inside, outside net.Conn) (in, out int64) {
	var both sync.WaitGroup
	both.Go(func() { in = copyBytes(inside, outside) })
	out = copyBytes(outside, inside)
	both.Wait()
	return in, out
}

func copyBytes(to, from net.Conn) int64 {
	n, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil {
		reset(to)
		reset(from)
	}
	return n
}

// reset aborts a connection by a TCP reset, so that its peer sees an error and not an ordinary end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // on failure the connection closes normally
	}
	_ = conn.Close()
}

// Parse parses PORT or PORT:HOSTPORT, the argument of snapfs port: the port in the sandbox and that on the
// host, which is 0 if not given.
func Parse(text string) (port, host uint16, err error) {
	inner, outer, named := strings.Cut(text, ":")
	if port, err = number(inner); err == nil && named {
		host, err = number(outer)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("port %q: %w", text, err)
	}
	return port, host, nil
}

func number(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("PORT or PORT:HOSTPORT, each from 1 to 65535")
	}
	return uint16(n), nil
}
